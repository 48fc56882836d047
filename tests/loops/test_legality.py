"""What becomes illegal while it waits or runs, and what becomes legal: on the embedded fleet, step by step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.app.rules import without_rules
from dispatcher.core.audit import AuditKind, Entry
from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision, Reason
from dispatcher.core.lease import Always
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Policy
from dispatcher.core.replay import replay as replayed
from dispatcher.core.request import build_request
from dispatcher.core.seal import Seal, Trust
from dispatcher.core.snapshot import HubView
from dispatcher.core.waiting import Phase
from dispatcher.core.workload import Request
from residency.bundle import Settings
from residency.vocabulary import Queued, Running
from tests.builders import START
from tests.loops.bench import example
from tests.loops.jobs import H100, gang
from tests.loops.lawful import (
    EVERYWHERE,
    LawBench,
    close_all,
    forbidden,
    internal,
    law,
    lawful,
    permitted,
    reader,
    waiver,
)


@pytest_asyncio.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_all()


async def running(path: Path, change: Running) -> LawBench:
    """A job that runs under rules which want `change` done when they forbid it."""
    found = await lawful(path, permitted(change))
    found.bench.fleet.submit(reader("job"))
    await found.until("job", Phase.PLACED)
    await found.steps(3)
    return found


async def nominated(path: Path, queued: Queued) -> LawBench:
    """A job that waits with a nomination standing: no worker has admitted it yet."""
    found = await lawful(path, permitted(queued=queued))
    found.bench.fleet.submit(reader("job"))
    for _ in range(100):
        await found.bench.step(0.1)
        if found.bench.phase("job") is Phase.NOMINATED:
            return found
    raise AssertionError(found.bench.phases())


async def test_stop_now_ends_what_runs_exactly_once_and_it_waits_with_its_reason(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.STOP_NOW)
    found.rule(forbidden(Running.STOP_NOW))
    await found.until("job", Phase.WAITING)
    await found.steps(10)
    assert found.ended() == 1
    assert found.bench.phase("job") is Phase.WAITING
    reasons = {r.reason for c in found.bench.decision("job").candidates for r in c.rejections}
    assert Reason.RESIDENCY in reasons
    assert [e.detail for e in await found.entries() if e.kind is AuditKind.ILLEGAL] == [
        (("course", "end"), ("state", "runs"))
    ]
    assert "EndedByLaw" in [reason for reason, _ in found.bench.events("job")]


async def test_what_was_stopped_starts_by_itself_when_it_is_legal_again(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.STOP_NOW)
    found.rule(forbidden(Running.STOP_NOW))
    await found.until("job", Phase.WAITING)
    found.rule(permitted(Running.STOP_NOW))
    await found.until("job", Phase.PLACED)
    assert found.ended() == 1
    assert found.bench.fleet.refused_latches == 0


@pytest.mark.parametrize(
    ("change", "codes"),
    [(Running.KEEP, []), (Running.DRAIN, ["illegal-running"])],
    ids=["keep lets it end and records it", "drain holds it in place, since nothing moves yet, and pages"],
)
async def test_what_runs_stays_where_its_rule_does_not_say_stop(
    tmp_path: Path, change: Running, codes: list[str]
) -> None:
    found = await running(tmp_path, change)
    found.rule(forbidden(change))
    await found.steps(10)
    assert found.bench.phase("job") is Phase.PLACED
    assert (found.ended(), found.codes()) == (0, codes)
    rows = [e for e in await found.entries() if e.kind is AuditKind.ILLEGAL]
    assert [dict(e.detail)["course"] for e in rows] == ["keep" if change is Running.KEEP else "hold"]
    assert {said.rule for said in rows[0].said} == {"internal-by-country"}


async def test_a_finding_is_over_when_the_work_is_legal_again_and_the_log_says_so(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.DRAIN)
    found.rule(forbidden(Running.DRAIN))
    await found.steps(3)
    found.rule(permitted(Running.DRAIN))
    await found.steps(3)
    assert found.codes() == []
    kinds = [e.kind for e in await found.entries()]
    assert kinds[-2:] == [AuditKind.BUNDLE, AuditKind.LEGAL_AGAIN]


def told(rows: list[Entry]) -> list[tuple[str, str]]:
    """What the log tells of work that became illegal, or legal again."""
    kinds = (AuditKind.ILLEGAL, AuditKind.LEGAL_AGAIN)
    return [(entry.kind.value, dict(entry.detail).get("course", "")) for entry in rows if entry.kind in kinds]


def short_lived(running: Running, seconds: int) -> Policy:
    """Rules under which no verdict lives for long, so that each look finds another end of the same answer."""
    return law(*forbidden(running).residency.rules, settings=Settings(max_ttl_s=seconds))


async def test_an_attempt_that_ends_is_told_once_however_slow_the_hub_is(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.STOP_NOW)
    found.rule(short_lived(Running.STOP_NOW, 2))
    for _ in range(6):
        await found.loop.cycle()
        found.bench.clock.advance(1)  # Kueue does nothing yet: it still is where it ran
    assert found.bench.phase("job") is Phase.PLACED
    await found.until("job", Phase.WAITING)
    await found.steps(5)
    assert (found.ended(), told(await found.entries())) == (1, [("illegal", "end")])


async def test_what_stays_is_told_once_although_the_verdict_on_it_is_taken_again(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.DRAIN)
    found.rule(short_lived(Running.DRAIN, 2))
    await found.steps(10)
    assert told(await found.entries()) == [("illegal", "hold")]
    found.rule(permitted(Running.DRAIN))
    await found.steps(2)
    found.rule(short_lived(Running.DRAIN, 2))
    await found.steps(5)
    assert told(await found.entries()) == [("illegal", "hold"), ("legal-again", ""), ("illegal", "hold")]


async def test_what_is_being_ended_has_not_become_legal_where_it_still_stands(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.DRAIN)
    found.rule(forbidden(Running.DRAIN))
    await found.steps(2)
    hub, ended_at = found.bench.fleet.hub, found.bench.clock.now()

    class Evicting:
        """The hub as it is between Kueue's eviction and the release of the cluster."""

        def __getattr__(self, name: str) -> object:
            return getattr(hub, name)

        def view(self) -> HubView:
            seen = hub.view()
            workloads = {**seen.workloads, uid: replace(seen.workloads[uid], evicted_at=ended_at)}
            return replace(seen, workloads=workloads)

    uid = found.bench.workload("job").uid
    found.bench.state.hub = Evicting()  # type: ignore[assignment]
    await found.loop.cycle()
    found.bench.state.hub = hub
    assert told(await found.entries()) == [("illegal", "hold")]
    found.rule(permitted(Running.DRAIN))
    await found.steps(2)
    assert told(await found.entries()) == [("illegal", "hold"), ("legal-again", "")]


async def test_a_nomination_that_became_illegal_is_ended_as_a_whole_and_never_withdrawn(tmp_path: Path) -> None:
    found = await nominated(tmp_path, Queued.REQUEUE)
    before = found.bench.workload("job").nominated
    found.rule(forbidden())
    await found.loop.cycle()
    assert found.ended() == 1
    assert found.bench.workload("job").nominated == before, "only the hub clears it, with the eviction"
    await found.until("job", Phase.WAITING)
    await found.steps(10)
    assert found.ended() == 1
    assert found.bench.fleet.refused_latches == 0


async def test_a_rule_that_says_hold_leaves_the_nomination_where_it_is_and_pages(tmp_path: Path) -> None:
    found = await nominated(tmp_path, Queued.HOLD)
    found.rule(forbidden(queued=Queued.HOLD))
    await found.loop.cycle()
    assert (found.ended(), found.codes()) == (0, ["illegal-waiting"])
    assert found.bench.workload("job").nominated


async def test_a_worker_that_cannot_be_seen_is_left_alone(tmp_path: Path) -> None:
    found = await running(tmp_path, Running.STOP_NOW)
    cluster = found.bench.workload("job").cluster_name
    assert cluster is not None
    found.bench.fleet.break_link(cluster)
    await found.bench.step(70)
    found.rule(forbidden(Running.STOP_NOW))
    await found.loop.cycle()
    assert (found.ended(), found.codes()) == (0, ["illegal-running"])


@pytest.mark.parametrize(
    "seal",
    [
        Seal(Trust.MISSING),
        Seal(confirmed_at=START - timedelta(days=30)),
        Seal(valid_until=START - timedelta(days=1)),
        Seal(not_before=START + timedelta(days=1)),
    ],
    ids=["no rules at all", "rules too old", "rules expired", "a clock that went back"],
)
async def test_res_19_rules_in_doubt_stop_classified_dispatch_and_touch_nothing_that_runs(
    tmp_path: Path, seal: Seal
) -> None:
    found = await running(tmp_path, Running.STOP_NOW)
    doubtful = law(*forbidden(Running.STOP_NOW).residency.rules, settings=Settings(max_age_s=7 * 86400))
    found.rule(replace(doubtful, seal=seal))
    found.bench.fleet.submit(reader("next"))
    await found.steps(10)
    assert (found.ended(), found.codes(), found.bench.phase("job")) == (0, [], Phase.PLACED)
    assert found.bench.phase("next") is Phase.WAITING


async def test_old_rules_have_a_reason_of_their_own_and_public_work_goes_on(tmp_path: Path) -> None:
    policy = law(internal(EVERYWHERE), settings=Settings(max_age_s=3600))
    found = await lawful(tmp_path, replace(policy, seal=Seal(confirmed_at=START)))
    found.bench.fleet.submit(reader("early", duration="3s"))
    await found.until("early", Phase.FINISHED)
    await found.bench.step(3700)
    found.bench.fleet.submit(reader("late"))
    await found.steps(5)
    reasons = [r.reason for c in found.bench.decision("late").candidates for r in c.rejections]
    assert reasons.count(Reason.RULES_TOO_OLD) == len(found.bench.decision("late").candidates)


async def test_res_10_an_exception_starts_what_waits_and_its_end_mid_run_holds_it_in_place(tmp_path: Path) -> None:
    found = await lawful(tmp_path, forbidden())
    found.bench.fleet.submit(reader("job", duration="7200s"))
    await found.until("job", Phase.WAITING)
    await found.steps(5)
    assert found.bench.phase("job") is Phase.WAITING
    found.rule(law(*forbidden().residency.rules, waivers=(waiver(hours=1),)))
    await found.until("job", Phase.PLACED)
    row = next(e for e in reversed(await found.entries()) if e.kind is AuditKind.VERDICT and e.answer == "allow")
    assert row.valid_until == START + timedelta(hours=1)
    assert {name for said in row.said for name in said.exceptions} == {"w"}
    await found.bench.step(3700)
    await found.steps(2)
    assert found.codes() == ["illegal-running"], "the end of the exception is noticed by itself"


HOUR_S = 3600
RULES_OF_EIGHT_HOURS = Settings(max_age_s=8 * HOUR_S)


def stopping(until_hours: int) -> Policy:
    """Internal data may go nowhere but by an exception, and what runs without one is stopped."""
    return law(*forbidden(Running.STOP_NOW).residency.rules, waivers=(waiver(hours=until_hours),))


async def test_nothing_starts_by_an_exception_that_the_wall_clock_says_is_over(tmp_path: Path) -> None:
    found = await lawful(tmp_path, stopping(3))
    found.bench.clock.set_by_s = 4 * HOUR_S
    found.bench.fleet.submit(reader("late"))
    await found.until("late", Phase.WAITING)
    await found.steps(5)
    assert found.bench.phase("late") is Phase.WAITING
    seen = (await found.bench.store.record(found.bench.decision("late").id) or pytest.fail("no record")).inputs
    assert seen.snapshot.wall_ahead_s == 4 * HOUR_S, "the record says by which clock"
    assert replayed(seen) == found.bench.decision("late")
    found.bench.clock.set_by_s = 0
    await found.until("late", Phase.PLACED)


async def test_a_nomination_ends_with_its_exception_by_the_wall_clock(tmp_path: Path) -> None:
    found = await nominated(tmp_path, Queued.REQUEUE)
    found.rule(law(*forbidden().residency.rules, waivers=(waiver(hours=3),)))
    await found.loop.cycle()
    assert found.ended() == 0
    found.bench.clock.set_by_s = 4 * HOUR_S
    await found.loop.cycle()
    assert found.ended() == 1


@pytest.mark.parametrize(
    ("set_by_s", "passes_s"),
    [(4 * HOUR_S, 0), (-4 * HOUR_S, 3 * HOUR_S)],
    ids=["by the wall clock alone it is over", "by the daemon's own time alone it is over"],
)
async def test_what_runs_is_not_ended_for_a_date_that_one_clock_alone_says_is_over(
    tmp_path: Path, set_by_s: int, passes_s: int
) -> None:
    found = await lawful(tmp_path, stopping(3))
    found.bench.fleet.submit(reader("job", duration=f"{20 * HOUR_S}s"))
    await found.until("job", Phase.PLACED)
    found.bench.clock.set_by_s = set_by_s
    await found.bench.step(passes_s)
    await found.steps(3)
    assert (found.ended(), found.bench.phase("job")) == (0, Phase.PLACED)
    assert found.codes() == ["illegal-running"], "somebody is told"
    assert {dict(e.detail)["awaits"] for e in await found.entries() if e.kind is AuditKind.ILLEGAL} == {"clock"}
    assert "the wall clock was set" in str(found.bench.events("job"))
    assert f"entrepot_clock_ahead_seconds {float(set_by_s)}" in found.bench.metrics.text().decode()
    found.bench.clock.set_by_s = 0  # the clock that was wrong is right again, or the time has come by both
    if not passes_s:
        await found.steps(2)
        assert (found.ended(), found.codes()) == (0, [])
        await found.bench.step(3 * HOUR_S)
    await found.until("job", Phase.WAITING)
    assert found.ended() == 1


async def test_rules_that_are_too_old_by_the_wall_clock_stop_classified_dispatch_and_end_nothing(
    tmp_path: Path,
) -> None:
    policy = law(internal(EVERYWHERE), settings=RULES_OF_EIGHT_HOURS)
    found = await lawful(tmp_path, replace(policy, seal=Seal(confirmed_at=START)))
    found.bench.fleet.submit(reader("job", duration=f"{20 * HOUR_S}s"))
    await found.until("job", Phase.PLACED)
    found.bench.clock.set_by_s = 9 * HOUR_S
    found.bench.fleet.submit(reader("late"))
    await found.until("late", Phase.WAITING)
    await found.steps(5)
    reasons = {r.reason for c in found.bench.decision("late").candidates for r in c.rejections}
    assert Reason.RULES_TOO_OLD in reasons
    assert (found.bench.phase("job"), found.ended(), found.codes()) == (Phase.PLACED, 0, [])


async def test_res_20_rules_that_change_between_decision_and_write_cancel_the_write(tmp_path: Path) -> None:
    found = await lawful(tmp_path, permitted())
    commit = found.bench.store.commit
    swapped: list[bool] = []

    class Swapping:
        def __getattr__(self, name: str) -> object:
            return getattr(found.bench.store, name)

        async def commit(self, *args: object) -> None:
            await commit(*args)  # type: ignore[arg-type]
            if not swapped:
                swapped.append(True)
                found.rule(forbidden())

    found.bench.dispatch.store = Swapping()  # type: ignore[assignment]
    found.bench.fleet.submit(reader("job"))
    await found.steps(10)
    assert swapped
    assert found.bench.phase("job") is Phase.WAITING
    assert found.bench.seen_copies == {}, "no cluster has ever seen it"


async def test_res_09_an_exception_ends_at_its_very_instant_in_the_daemon_too(tmp_path: Path) -> None:
    found = await lawful(tmp_path, law(*forbidden().residency.rules, waivers=(waiver(hours=1),)))
    found.bench.fleet.submit(reader("job"))
    for _ in range(30):
        found.bench.clock.advance(1)
        found.bench.fleet.advance()
    state, hub = found.bench.state, found.bench.state.hub_view()
    workload = found.bench.workload("job")
    assert workload.owner is not None
    request = build_request(workload, hub.owners[workload.owner.uid], hub, state.policy)
    assert isinstance(request, Request)
    memo, end = CandidateMemo(), START + timedelta(hours=1)
    seen = state.snapshot(found.bench.clock.now())

    def at(now: datetime) -> Decision:
        return decide(request, seen, state.policy, now, memo)

    before = at(end - timedelta(seconds=1))
    assert (before.chosen, before.valid_until) == ("onprem-eu", end)
    assert before.law_digest == state.policy.residency.digest
    assert at(end).chosen is None
    assert at(end - timedelta(seconds=1)).chosen == "onprem-eu", "the memo keeps the two apart"


async def test_each_bundle_that_arrives_is_on_record_in_order_with_its_actor(tmp_path: Path) -> None:
    found = await lawful(tmp_path, permitted())
    signed = Seal(Trust.SIGNED, serial=7, tree="t7", author="ann", approvers=("bob",), key="K")
    for policy in (permitted(), replace(forbidden(), seal=signed), permitted()):
        found.bench.clock.advance(0.4)
        found.rule(policy)
    await found.loop.cycle()
    rows = [e for e in await found.entries() if e.kind is AuditKind.BUNDLE]
    assert [e.actor for e in rows] == ["unsigned", "ann, approved by bob", "unsigned"]
    assert [e.serial for e in rows] == [None, 7, None]
    found.wire()
    found.rule(permitted())
    await found.loop.cycle()
    assert len([e for e in await found.entries() if e.kind is AuditKind.BUNDLE]) == 3, "a restart is no news"


@pytest.mark.parametrize("goes_on", [True, False], ids=["public work goes on where it may", "else nothing does"])
async def test_without_any_rules_nothing_restricted_is_dispatched(tmp_path: Path, goes_on: bool) -> None:
    policy, _ = example()
    found = await lawful(tmp_path, without_rules(policy, Seal(Trust.MISSING, public_goes_on=goes_on)))
    found.bench.fleet.submit(reader("restricted"))
    found.bench.fleet.submit(gang("public", product=H100, duration="600s", says={"datasets": "public-roads"}))
    await found.until("public", Phase.WAITING, Phase.PLACED)
    await found.steps(8)
    assert found.bench.phase("public") is (Phase.PLACED if goes_on else Phase.WAITING)
    assert found.bench.phase("restricted") is Phase.WAITING


async def test_a_replica_that_stood_by_repeats_nothing_that_the_leader_has_written(tmp_path: Path) -> None:
    found = await lawful(tmp_path, permitted())
    stands_by = Stands()
    for policy in (permitted(), forbidden(), permitted()):
        found.bench.clock.advance(1)
        found.rule(policy)
        kept = list(found.bench.state.bundle_events)
        await found.loop.cycle()
        found.bench.state.bundle_events.extend(kept)
        found.loop.leadership = stands_by
        await found.loop.cycle()
        found.loop.leadership = Always()
    await found.loop.cycle()
    assert len([e for e in await found.entries() if e.kind is AuditKind.BUNDLE]) == 3


class Stands:
    """Never leads."""

    term = 0

    def may_write(self, now_s: float) -> bool:
        return False

    def lost(self, why: str) -> None:
        raise AssertionError(why)


async def test_every_nomination_has_its_row_and_names_the_bundle_of_its_decision(tmp_path: Path) -> None:
    found = await lawful(tmp_path, permitted())
    for name in ("one", "two", "three"):
        found.bench.fleet.submit(reader(name, duration="3s"))
    for name in ("one", "two", "three"):
        await found.until(name, Phase.FINISHED)
    decided = {d.id: d for d in await found.bench.store.recent(50) if d.chosen is not None}
    rows = {e.decision: e for e in await found.entries() if e.kind is AuditKind.VERDICT and e.answer == "allow"}
    assert set(rows) == set(decided)
    assert len(rows) == 3
    assert {e.bundle for e in rows.values()} == {d.law_digest for d in decided.values()}
    text = b"".join([row.body async for row in found.bench.store.audit_log.rows()]).decode()
    assert not [name for name in ("one", "two", "three", "autonomy/") if f'"{name}' in text], "no object's name"
