"""Between two changes nobody who waits is asked again; whatever may let one of them start ends that at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.memo import CandidateMemo
from dispatcher.core.snapshot import HubView
from dispatcher.core.waiting import Phase
from dispatcher.core.workload import Avoided, Request, WorkloadClass
from dispatcher.loops.planning import OWNER_GRACE_S
from tests.loops.bench import Bench, start
from tests.loops.jobs import RTX, gang
from tests.loops.steady import Steady
from tests.loops.test_patience import behind

LONG = {"expected-duration": "PT2H"}


@dataclass(slots=True)
class Asked(CandidateMemo):
    """Notes of whom it was asked whether anything has changed for them."""

    names: list[str] = field(default_factory=list)

    def unchanged(self, request: Request) -> bool:
        self.names.append(request.job_name)
        return CandidateMemo.unchanged(self, request)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Two that wait for more than there is, on a fleet where nothing else happens."""
    found = await start(tmp_path)
    steady(found)
    for name in ("one", "two"):
        found.fleet.submit(crowd(name))
    await calm(found)
    yield found
    await found.store.close()


def crowd(name: str) -> dict[str, object]:
    """More pods that take a whole node each than there are nodes."""
    return gang(name, pods=40, product=RTX, namespace="simulation", duration="2h", says=LONG)


def steady(bench: Bench) -> None:
    bench.state.hub = Steady(bench.state.hub)  # type: ignore[assignment]
    bench.dispatch.planner.memo = Asked()


async def calm(bench: Bench) -> None:
    """Until two passes have asked nobody: the first of them may have been one that decided."""
    quiet = 0
    for _ in range(60):
        asked(bench).clear()
        await bench.step()
        quiet = 0 if asked(bench) or not bench.state.latest else quiet + 1
        if quiet == 2:
            return
    raise AssertionError(f"no pass without asking: {bench.phases()}")


def asked(bench: Bench) -> list[str]:
    memo = bench.dispatch.planner.memo
    assert isinstance(memo, Asked)
    return memo.names


async def test_while_only_time_passes_nobody_is_asked(bench: Bench) -> None:
    assert {bench.phase("one"), bench.phase("two")} == {Phase.WAITING}
    for _ in range(30):
        await bench.step()
    assert asked(bench) == []


def other_rules(bench: Bench) -> None:
    bench.state.policy = replace(bench.state.policy)


def a_node_more_or_less(bench: Bench) -> None:
    worker = next(iter(sorted(bench.fleet.workers)))
    node = bench.fleet.worker_view(worker).nodes[0].name
    bench.fleet.cordon(worker, node)


def one_job_less(bench: Bench) -> None:
    bench.fleet.delete("Job", "simulation", "two")


def one_job_more(bench: Bench) -> None:
    bench.fleet.submit(crowd("three"))


def a_worker_falls_silent(bench: Bench) -> None:
    bench.fleet.silence(next(iter(sorted(bench.fleet.workers))))
    bench.clock.advance(bench.state.policy.limits.silence_limit_s)


def another_term(bench: Bench) -> None:
    bench.dispatch.planner.forget()


ENDS = [
    other_rules,
    a_node_more_or_less,
    one_job_less,
    one_job_more,
    a_worker_falls_silent,
    another_term,
]


@pytest.mark.parametrize("happens", ENDS, ids=lambda happens: happens.__name__.replace("_", " "))
async def test_what_may_matter_to_those_who_wait_has_them_asked(bench: Bench, happens: Callable[[Bench], None]) -> None:
    happens(bench)
    for _ in range(3):
        await bench.step()
    assert "one" in asked(bench)
    await calm(bench)


async def test_what_speaks_against_a_cluster_from_now_on_is_weighed_at_once(bench: Bench) -> None:
    before, uid = bench.decision("one").id, bench.workload("one").uid
    now, cluster = bench.clock.now(), next(iter(bench.state.workers))
    entry = Avoided(cluster, "copy-rejected", now, now + timedelta(minutes=10), excluded=True)
    bench.state.avoided[uid] = (entry,)
    await bench.step()
    assert bench.decision("one").id != before
    del bench.state.avoided[uid]
    await calm(bench)


async def test_a_cluster_that_takes_too_long_is_noticed_though_nothing_changes(tmp_path: Path) -> None:
    bench = await start(tmp_path)
    steady(bench)
    behind(bench)
    bench.fleet.submit(gang("slow", gpus=1, duration="2h", says=LONG))
    bench.fleet.submit(crowd("one"))
    await bench.until(lambda: bench.find("slow") is not None and len(bench.workload("slow").nominated) == 1)
    stand_still(bench, bench.state.hub_view())
    await calm(bench)
    patience_s = bench.state.policy.classes[WorkloadClass.TRAINING].patience_s
    # On a hub that stands still a second cluster cannot be written, its versions being old: it is tried all the same.
    tried = b'result="conflict"'
    passed_s = await bench.until(lambda: tried in bench.metrics.text(), within_s=patience_s + 60)
    assert passed_s > patience_s - 60
    await bench.store.close()


async def test_what_turns_while_a_pass_is_on_its_way_is_not_missed(bench: Bench) -> None:
    looked_at, uid = bench.clock.now(), bench.workload("one").uid
    bench.dispatch.planner.retries.failed(uid, looked_at)
    turn = bench.dispatch.planner.retries.again_at(uid, looked_at)
    bench.clock.advance(3600)
    assert bench.dispatch.again_at(looked_at) == turn
    assert bench.dispatch.again_at() > bench.clock.now()


async def test_a_job_that_stays_away_is_told_at_the_end_of_its_grace(bench: Bench) -> None:
    """Its Workload is there, and nothing changes any more: the grace ends by itself."""
    seen = bench.state.hub_view()
    gone = replace(seen, owners={uid: o for uid, o in seen.owners.items() if o.name != "one"})
    stand_still(bench, gone)
    uid = bench.workload("one").uid
    for _ in range(int(OWNER_GRACE_S) + 2):
        await bench.step()
    assert uid in bench.state.problems
    await calm(bench)


@dataclass(slots=True)
class Shown:
    """A cluster on which nothing changes any more."""

    seen: Any
    port: Any

    def view(self) -> Any:
        return replace(self.seen, observed_at=self.port.view().observed_at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)


def stand_still(bench: Bench, hub: HubView) -> None:
    """From now on everything is as it is; of the hub, as given."""
    bench.state.hub = Shown(hub, bench.state.hub)  # type: ignore[assignment]
    bench.state.workers = {name: Shown(port.view(), port) for name, port in bench.state.workers.items()}


def folders(tmp_path: Path) -> tuple[Path, Path]:
    kept, anew = tmp_path / "kept", tmp_path / "anew"
    for folder in (kept, anew):
        folder.mkdir()
    return kept, anew


async def test_a_hub_that_keeps_its_objects_gets_the_same_decisions_as_one_that_makes_them_anew(tmp_path: Path) -> None:
    kept, anew = folders(tmp_path)
    assert await story(kept, keeps=True) == await story(anew, keeps=False)


async def story(folder: Path, *, keeps: bool) -> list[tuple[object, ...]]:
    """Jobs that come and go, calm in between; and what was decided on each, in the order of the decisions."""
    bench = await start(folder)
    if keeps:
        steady(bench)
    for at in range(90):
        if at % 15 == 0:
            bench.fleet.submit(crowd(f"crowd-{at}"))
            bench.fleet.submit(gang(f"small-{at}", gpus=2, product=RTX, namespace="simulation", duration="20s"))
        if at == 40:
            bench.fleet.delete("Job", "simulation", "crowd-0")
        await bench.step()
    decisions = await bench.store.recent(1000)
    await bench.store.close()
    return [(d.decided_at, d.key, d.outcome, d.chosen, d.attempt, d.request_digest) for d in decisions]
