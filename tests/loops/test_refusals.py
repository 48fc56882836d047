"""A hub that does not take nominations: who waits for it is told so, and it is asked ever more rarely."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.decision import Outcome, Reason
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.explain import sentence
from dispatcher.core.ports import HubPort, Nomination
from dispatcher.core.waiting import Phase
from dispatcher.loops.rhythm import LONGEST_HUB_PAUSE_S, Breaker
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import H100, H200, RTX, gang

NOW = datetime(2026, 7, 1, tzinfo=UTC)
DENIED = "admission webhook denied the request: quiet hours"


@dataclass(slots=True)
class DenyingHub:
    """The embedded hub, which denies what `denies` says, and counts what it was asked."""

    hub: HubPort
    denies: Callable[[Nomination], Exception | None]
    asked: list[str] = field(default_factory=list)

    async def nominate(self, nomination: Nomination) -> str:
        self.asked.append(nomination.name)
        error = self.denies(nomination)
        if error is not None:
            raise error
        return await self.hub.nominate(nomination)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hub, name)


def denying(bench: Bench, denies: Callable[[Nomination], Exception | None]) -> DenyingHub:
    found = DenyingHub(bench.state.hub, denies)
    bench.state.hub = found  # type: ignore[assignment]
    return found


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = await start(tmp_path)
    yield found
    await found.store.close()


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


# --- the breaker -------------------------------------------------------------------------------------------------


def test_a_namespace_that_refuses_is_asked_one_at_a_time_and_ever_more_rarely() -> None:
    breaker = Breaker()
    assert breaker.stops("a", NOW) is None
    breaker.refused("a", DENIED, NOW)
    breaker.refused("a", DENIED, NOW)
    found = breaker.stops("a", after(0.9))
    assert found is not None
    assert (found.message, found.own, found.again_at) == (DENIED, False, after(1))
    assert breaker.stops("b", NOW) is None
    assert breaker.stops("a", after(1)) is None
    breaker.tries("a")
    assert breaker.stops("a", after(1)) is not None, "one is on its way"
    breaker.refused("a", DENIED, after(1))
    breaker.ended()
    assert breaker.stops("a", after(2.9)) is not None
    assert breaker.stops("a", after(3)) is None


def test_several_namespaces_that_refuse_in_a_row_are_the_hub() -> None:
    breaker = Breaker()
    for namespace in ("a", "b", "c"):
        assert breaker.stops("d", NOW) is None
        breaker.refused(namespace, DENIED, NOW)
    assert breaker.stops("d", NOW) is not None
    assert breaker.stops("d", after(LONGEST_HUB_PAUSE_S)) is None, "one that has not refused is asked soon"
    breaker.made("d")
    assert breaker.stops("e", after(0.5)) is None
    assert breaker.stops("a", after(0.5)) is not None, "what was taken of one says nothing of another"


def test_conflicts_of_everything_are_a_refusal_and_some_are_not() -> None:
    breaker = Breaker()
    for _ in range(15):
        breaker.conflicted("modified", NOW)
    breaker.made("a")
    for _ in range(15):
        breaker.conflicted("modified", NOW)
    assert breaker.stops("a", NOW) is None
    breaker.conflicted("modified", NOW)
    assert breaker.stops("a", NOW) is not None


# --- the loop ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Refused(DENIED), Conflict(DENIED)], ids=["403", "422"])
@pytest.mark.slow
async def test_five_hundred_refused_jobs_do_not_make_a_storm(bench: Bench, error: Exception) -> None:
    hub = denying(bench, lambda nomination: error)
    for number in range(500):
        namespace = ("autonomy", "simulation", "flywheel")[number % 3]
        bench.fleet.submit(gang(f"denied-{number:03d}", gpus=1, product=RTX, namespace=namespace))
    for _ in range(40):
        await bench.step()
    assert len(hub.asked) <= 90, "at first a batch or two, then about one in five seconds and namespace"
    late = len(hub.asked)
    for _ in range(40):
        await bench.step()
    assert 1 <= len(hub.asked) - late <= 20
    hub.denies = lambda nomination: None
    await bench.until(lambda: any(w.nominated for w in bench.state.hub_view().workloads.values()), within_s=40)
    assert bench.state.holds


async def test_a_refused_workload_is_recorded_and_told_with_what_the_hub_said(bench: Bench) -> None:
    hub = denying(bench, lambda nomination: Refused(DENIED))
    bench.fleet.submit(gang("denied", product=H100))
    await bench.until(lambda: bool(hub.asked))
    await bench.step(0.1)
    decision = bench.decision("denied")
    assert decision.outcome is Outcome.WAIT
    assert decision.kept is not None
    assert decision.kept.reason is Reason.NOMINATION_REFUSED
    assert decision.kept.detail.seen == (DENIED,)
    assert DENIED in sentence(decision)
    stored = await bench.store.decisions_of(bench.workload("denied").key, 5)
    assert [d.outcome for d in stored] == [Outcome.WAIT, Outcome.NOMINATE]
    assert any(DENIED in message for _, message in bench.events("denied"))
    assert bench.state.holds == {}
    hub.denies = lambda nomination: None
    await bench.until(bench.finished("denied"), within_s=60)
    newest = (await bench.store.decisions_of(bench.workload("denied").key, 1))[0]
    assert (newest.outcome, newest.attempt) == (Outcome.NOMINATE, 1), "what was never made is no attempt"


async def test_a_refused_workload_keeps_its_reason_over_a_restart(bench: Bench) -> None:
    denying(bench, lambda nomination: Refused(DENIED))
    bench.fleet.submit(gang("denied", product=H100))
    await bench.until(lambda: "denied" in {d.job_name for d in bench.state.latest.values()})
    assert bench.decision("denied").outcome is Outcome.WAIT
    newest = await bench.store.newest_of([bench.workload("denied").uid])
    assert [d.kept is not None for d in newest] == [True]


async def test_who_is_kept_back_by_a_refusal_of_others_is_told_so_and_a_friendly_namespace_goes_on(
    bench: Bench,
) -> None:
    denying(bench, lambda nomination: Refused(DENIED) if nomination.namespace == "autonomy" else None)
    bench.fleet.submit(gang("denied", product=H100))
    await bench.until(lambda: "denied" in {d.job_name for d in bench.state.latest.values()})
    bench.fleet.submit(gang("behind", product=H200))
    bench.fleet.submit(gang("friend", gpus=1, product=RTX, namespace="simulation"))
    await bench.until(lambda: bench.find("behind") is not None and bench.find("friend") is not None)
    await bench.until(bench.finished("friend"), within_s=30)
    told = {d.job_name: d.kept for d in bench.state.latest.values() if d.kept is not None}
    assert {"denied", "behind"} <= set(told)
    assert all(kept is not None and kept.reason is Reason.NOMINATION_REFUSED for kept in told.values())


async def test_who_is_kept_back_by_the_bound_is_told_so(tmp_path: Path) -> None:
    policy, _ = example()
    limits = replace(policy.limits, outstanding_nominations=1)
    bench = await start(tmp_path, policy=replace(policy, limits=limits))
    for name in ("first", "second"):
        bench.fleet.submit(gang(name, gpus=1, product=H100))
    await bench.until(lambda: len(bench.state.latest) == 2, within_s=10)
    decision = bench.decision("second")
    assert decision.kept is not None
    assert decision.kept.reason is Reason.TOO_MANY_OUTSTANDING
    assert (decision.kept.detail.needed, decision.kept.detail.found) == (2, 1)
    assert any(candidate.eligible for candidate in decision.candidates)
    assert "limits.outstanding_nominations allows 1" in bench.events("second")[-1][1]
    rows = await bench.store.decisions_of(bench.workload("second").key, 5)
    assert len(rows) == 1
    await bench.until(bench.finished("first", "second"), within_s=60)
    assert bench.phase("second") is Phase.FINISHED
    await bench.store.close()
