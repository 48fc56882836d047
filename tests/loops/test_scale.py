"""A deep queue on a busy fleet: events wake, lists decide, and the last in line is looked at like the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.embedded import ManualClock
from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.waiting import Phase
from dispatcher.runtime import Waker
from tests import builders as b
from tests.loops.bench import Bench, start
from tests.loops.jobs import H100, RTX, gang

HOME = ClusterName("onprem-eu")
EVENTS_A_S = 100
SECONDS = 5
LONGEST_S = 60.0
RTX_NODES = 4
PATIENT = {"entrepot.dev/workload-class": "training"}
"""A class that is never nominated ahead of its capacity."""
HOLDS = 10
"""Runs of eight GPUs that fill all H100 on one cluster, and more, so that everything behind them waits."""


async def settled(bench: Bench) -> None:
    """Nothing is left to do. First waits are stored one by one; a test need not wait for that."""
    for _ in range(3):
        await bench.step()
        bench.dispatch.planner.waits.clear()


def local(name: str) -> b.Manifest:
    template = b.pod_template({"cpu": 1}, "1s")
    return b.job(name, queue="rollouts", in_namespace="simulation", template=template)


@pytest.mark.parametrize(
    "waiting", [pytest.param(300, id="300"), pytest.param(10_000, id="10000", marks=pytest.mark.slow)]
)
async def test_fr_scl_02_events_wake_nobody_whom_they_do_not_concern_and_the_last_in_line_is_examined(
    tmp_path: Path, waiting: int
) -> None:
    """100 events a second on the workers. Whoever they change nothing for is not decided on again, which is what they
    cost at any length of the line; and the last in line starts with the first cycle in which there is room for it."""
    bench = await start(tmp_path)
    only = {"clusters": HOME}
    for number in range(HOLDS):
        bench.fleet.submit(gang(f"holds-{number}", duration="40000s", says=only, priority="release-gate"))
    for number in range(RTX_NODES):
        bench.fleet.submit(gang(f"rtx-{number}", product=RTX, namespace="simulation", duration="60s", says=only))
    await settled(bench)
    for number in range(waiting):
        bench.fleet.submit(gang(f"waits-{number:05d}", gpus=1, product=H100, says=only))
    await settled(bench)
    while any(bench.phase(f"rtx-{number}") is not Phase.PLACED for number in range(RTX_NODES)):
        await bench.step()
    bench.fleet.submit(gang("last", product=RTX, namespace="simulation", says=only, labels=PATIENT))
    await settled(bench)
    assert bench.decision("last").outcome is Outcome.WAIT
    before: dict[WorkloadUid, Decision] = dict(bench.state.latest)
    for second in range(SECONDS):
        for event in range(EVENTS_A_S):
            bench.fleet.submit(local(f"event-{second}-{event}"), ("cloud-a-fi", "cloud-b-fr")[event % 2])
        await bench.step()
    again = sum(before[uid] is not bench.state.latest.get(uid) for uid in before)
    most = bench.state.policy.order.reservations
    assert again <= most, "what happens elsewhere concerns none but those who keep a start free, which time moves"
    holders = [(w.namespace, w.name) for n in range(RTX_NODES) for w in (bench.workload(f"rtx-{n}"),)]

    def has_room() -> bool:
        shown = bench.state.worker_views()[HOME].copies
        return any(key not in shown or shown[key].finished for key in holders)

    await bench.until(has_room, within_s=LONGEST_S + 30.0)
    await bench.step()
    assert bench.decision("last").outcome is Outcome.NOMINATE, "the first cycle that sees room for it, or the next"
    await bench.store.close()


async def test_fr_scl_02_any_number_of_events_is_one_wake_up() -> None:
    clock = ManualClock(b.START)
    waker = Waker(clock)
    for _ in range(EVENTS_A_S):
        waker.wake()
    await waker.wait(5.0)
    assert not waker._event.is_set()
    assert clock.now() == b.START, "woken, and not by its time"
