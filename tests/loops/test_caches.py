"""A data set that one job brings is there for the next: after its admission, over a restart, and over a kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dispatcher.core.decision import Decision, TermKind
from dispatcher.core.ids import ClusterName, DataSetName, StoreName
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Intent, IntentState
from dispatcher.core.replay import Verdict, compare, replay
from dispatcher.core.waiting import Phase
from dispatcher.store.documents import replayed_digest
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import H100, gang

HERE = ClusterName("cloud-a-fi")
RADAR = DataSetName("radar-2026")
WAY_S = 8000
"""40 TB from our own lake at 40 Gbit/s."""


def rules() -> Policy:
    """The radar lies in the lake alone; the caches hold it."""
    policy, _ = example()
    sites = {name: replace(site, cache_bytes=10**14) for name, site in policy.clusters.items()}
    radar = replace(policy.data_sets[RADAR], replica_stores=(StoreName("lake-de"),))
    return replace(policy, clusters=sites, data_sets={**policy.data_sets, RADAR: radar})


def reader(name: str, lasts: str = "1000h") -> dict[str, object]:
    says = {"datasets": RADAR, "clusters": HERE}
    return gang(name, gpus=1, product=H100, duration=lasts, says=says)


async def placed(bench: Bench, name: str, lasts: str = "1000h") -> Decision:
    bench.fleet.submit(reader(name, lasts))
    await bench.until(lambda: bench.phase(name) is Phase.PLACED)
    await bench.step()
    return bench.decision(name)


def paid(decision: Decision) -> bool:
    return any(line.amount_usd_micro for line in _bill(decision, TermKind.DATA_IN))


def waits_s(decision: Decision) -> int:
    return sum(line.quantity for line in _bill(decision, TermKind.WAITING))


def said(decision: Decision) -> str:
    return _bill(decision, TermKind.DATA_IN)[0].what


def _bill(decision: Decision, kind: TermKind):  # type: ignore[no-untyped-def]
    found = decision.candidate(HERE)
    assert found is not None
    return next(term for term in found.terms if term.kind is kind).bill


async def test_what_one_brings_is_shared_after_its_admission_and_there_when_it_has_come(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=rules())
    first = await placed(bench, "first")
    assert paid(first)
    assert not bench.state.holds, "the promise is over"

    second = await placed(bench, "second")
    assert (paid(second), waits_s(second)) == (False, waits_s(first))
    assert "on its way for autonomy/job-first" in said(second)

    await bench.step(WAY_S)
    third = await placed(bench, "third")
    assert (paid(third), waits_s(third)) == (False, 0)
    assert "in the cache since" in said(third)
    await bench.store.close()


async def test_a_decision_on_a_cache_replays_to_the_same_bytes(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=rules())
    for name in ("first", "second"):
        made = await placed(bench, name)
        record = await bench.store.record(made.id)
        assert record is not None
        again = replay(record.inputs)
        assert compare(record, again, replayed_digest(again)).verdict is Verdict.SAME
    assert record.inputs.snapshot.cluster(HERE).cached[0].data_set == RADAR  # type: ignore[union-attr]
    await bench.store.close()


async def test_a_new_daemon_knows_what_is_on_its_way_and_what_is_there(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=rules())
    await placed(bench, "first")
    before = bench.state.cached
    await bench.restart()
    await bench.step()
    assert bench.state.cached == before
    assert "on its way" in said(await placed(bench, "second"))

    await bench.step(WAY_S)
    await bench.step()
    for name in ("first", "second"):
        bench.fleet.delete("Job", "autonomy", name)
    await bench.step()
    there = bench.state.cached
    assert [found.there for found in there[HERE]] == [True], "those who brought it are gone, the data is not"
    await bench.restart()
    await bench.step()
    assert bench.state.cached == there
    await bench.store.close()


async def test_what_ended_too_early_is_paid_again_by_an_old_daemon_and_by_a_new_one(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=rules())
    await placed(bench, "first")
    bench.fleet.delete("Job", "autonomy", "first")
    await bench.until(lambda: bench.find("first") is None)
    await bench.step()
    assert bench.state.cached[HERE] == ()
    await bench.step(WAY_S)
    await bench.restart()
    await bench.step()
    assert bench.state.cached[HERE] == (), "time alone brings nothing"
    assert paid(await placed(bench, "second"))
    await bench.store.close()


async def test_what_ended_while_nobody_looked_is_not_counted_on(tmp_path: Path) -> None:
    """The daemon is away when it ends, and comes back when the transfer would be over: nobody can tell."""
    bench = await start(tmp_path, policy=rules())
    await placed(bench, "first")
    bench.fleet.delete("Job", "autonomy", "first")
    bench.clock.advance(WAY_S * 2)
    bench.fleet.advance()
    await bench.restart()
    await bench.step()
    assert bench.state.cached[HERE] == ()
    await bench.store.close()


async def test_a_kill_between_the_commit_and_the_write_leaves_nothing_that_was_never_on_its_way(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=rules())
    bench.fleet.submit(reader("first"))
    bench.clock.advance(1)
    bench.fleet.advance()
    (plan,) = await bench.dispatch.plan(set())
    intent = Intent(plan.decision.id, plan.request.uid, (HERE,), IntentState.PLANNED, bench.clock.now())
    await bench.store.commit(plan.decision, plan.hold, intent, plan.seen)
    await bench.restart()
    assert [found.there for found in bench.state.cached[HERE]] == [False], "it may have been written"

    await bench.until(lambda: bench.phase("first") is Phase.PLACED)
    again = bench.decision("first")
    assert again.id != plan.decision.id
    assert paid(again), "its own first nomination brought nothing"
    second = await placed(bench, "second")
    assert not paid(second)
    assert bench.state.cached[HERE][0].decision == again.id
    await bench.store.close()


async def test_a_smaller_cache_in_a_new_blueprint_holds_less(tmp_path: Path) -> None:
    bench = await start(tmp_path, policy=rules())
    await placed(bench, "first")
    small = replace(bench.state.policy.clusters[HERE], cache_bytes=10**12)
    sites = {**bench.state.policy.clusters, HERE: small}
    bench.state.policy = replace(bench.state.policy, clusters=sites, digest="new")
    await bench.step()
    assert bench.state.cached[HERE] == ()
    await bench.store.close()
