"""Laws of one batch: nominations that are decided one after another and written side by side."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.ids import ClusterName
from dispatcher.core.waiting import Phase
from tests.builders import GPU
from tests.examples import examples
from tests.loops.bench import Bench, example, example_plan, start
from tests.loops.jobs import RTX, gang

CLASSES = ("simulation", "evaluation")
PRIORITIES = ("", "release-gate")
ONPREM, RTX_FLAVOR = ClusterName("onprem-eu"), "rtx-pro-6000"


@dataclass(frozen=True, slots=True)
class Asked:
    """One job of the crowd."""

    gpus: int
    workload_class: str = CLASSES[0]
    priority: str = ""


standing = st.lists(st.sampled_from((1, 2, 4)), min_size=1, max_size=8)
crowds = st.lists(
    st.builds(Asked, st.sampled_from((1, 2, 4, 8)), st.sampled_from(CLASSES), st.sampled_from(PRIORITIES)),
    min_size=2,
    max_size=20,
)


def submit(bench: Bench, name: str, asked: Asked) -> None:
    more = {"priority": asked.priority} if asked.priority else {}
    manifest = gang(name, gpus=asked.gpus, product=RTX, namespace="simulation", duration="600s", **more)
    manifest["metadata"].setdefault("labels", {})["entrepot.dev/workload-class"] = asked.workload_class
    bench.fleet.submit(manifest)


def narrow(bench: Bench, gpus: int) -> None:
    """Leave the queue so many of these GPUs and nothing to borrow: quota ends before the nodes do, as it often does."""
    queue = next(
        o
        for o in example_plan().workers[ONPREM]
        if o["kind"] == "ClusterQueue" and o["metadata"]["name"] == "simulation"
    )
    changed = copy.deepcopy(dict(queue))
    for group in changed["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            for line in flavor["resources"]:
                if flavor["name"] == RTX_FLAVOR and line["name"] == GPU:
                    line |= {"nominalQuota": str(gpus), "borrowingLimit": "0", "lendingLimit": "0"}
    bench.fleet.apply(changed, ONPREM)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a crowd: nominations that were given up before their write, written ones by kind."""

    overtaken: int
    fits: int
    ahead: int


async def decide_at_once(running: Sequence[int], crowd: Sequence[Asked], look_ahead: int, quota: int) -> Outcome:
    """The crowd comes in one instant to a fleet that these run on; nothing but its own batches moves any view."""
    policy, _ = example()
    classes = {name: replace(plan, look_ahead=look_ahead) for name, plan in policy.classes.items()}
    with tempfile.TemporaryDirectory(prefix="entrepot-law-") as folder:
        bench = await start(Path(folder), policy=replace(policy, classes=classes))
        narrow(bench, quota)
        for at, gpus in enumerate(running):
            submit(bench, f"runs-{at:02d}", Asked(gpus))
        for _ in range(6):
            await bench.step()
        before = frozenset(bench.state.hub_view().workloads)
        for at, asked in enumerate(crowd):
            submit(bench, f"roll-{at:02d}", asked)
        bench.clock.advance(1.0)
        bench.fleet.advance()
        await bench.dispatch.cycle()
        new = [d for uid, d in bench.state.latest.items() if uid not in before and d.chosen is not None]
        await bench.store.close()
    ahead = sum(decision.ahead is not None for decision in new)
    given_up = bench.metrics.nominations.labels("overtaken")._value.get()
    return Outcome(int(given_up), len(new) - ahead, ahead)


@pytest.mark.slow  # each example is a daemon with a store of its own
@examples(60)
@given(standing, crowds, st.integers(0, 4), st.sampled_from((4, 6, 8, 12, 16, 32)))
def test_while_no_view_moves_whatever_a_batch_decides_it_writes(
    running: list[int], crowd: list[Asked], look_ahead: int, quota: int
) -> None:
    """So no fit loses to a look-ahead that was decided behind it, in whatever order the two are stored and written."""
    assert asyncio.run(decide_at_once(running, crowd, look_ahead, quota)).overtaken == 0


async def test_a_fit_is_written_beside_a_look_ahead_that_asks_for_more_than_is_free() -> None:
    """Of a quota of eight two are in use: the small ones fit, the big one behind queues for what the others use."""
    found = await decide_at_once([2], [Asked(8), Asked(1), Asked(1)], 3, 8)
    assert found == Outcome(overtaken=0, fits=2, ahead=1)


async def test_what_fitted_and_could_only_queue_now_is_decided_again(tmp_path: Path) -> None:
    """The room goes between the decision and the write. It is not written as the fit that it was decided as."""
    bench = await start(tmp_path)
    submit(bench, "small", Asked(1))
    bench.clock.advance(1.0)
    bench.fleet.advance()
    (planned,) = await bench.dispatch.plan(set())
    assert planned.decision.ahead is None
    for number in range(40):
        local = gang(f"local-{number}", gpus=1, product=RTX, namespace="simulation", duration="600s")
        bench.fleet.submit(local, planned.hold.cluster)
    bench.clock.advance(1.0)
    bench.fleet.advance()
    await bench.dispatch.write([planned])
    assert bench.phase("small") is Phase.WAITING
    assert bench.metrics.nominations.labels("overtaken")._value.get() == 1
    await bench.store.close()
