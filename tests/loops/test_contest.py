"""Kueue's own shares and preemption, followed and not fought: reclaim in cohorts, and starts that stop somebody."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors.embedded import EmbeddedFleet, ManualClock
from dispatcher.config import load_blueprint
from dispatcher.config.render import Rendered, render
from dispatcher.core.decision import Candidate, Decision, Fit, Outcome, Reason, TermKind
from dispatcher.core.explain import sentence
from dispatcher.core.explain_preemption import victim_text
from dispatcher.core.ids import ClusterName
from dispatcher.core.policy import Policy
from dispatcher.core.replay import replay
from dispatcher.core.stakes import decide_knowing
from dispatcher.core.waiting import Phase
from dispatcher.core.watchdog import FindingCode
from dispatcher.loops.watch_copies import EXCLUSION_S
from dispatcher.store.documents import decode_snapshot, encode_snapshot, taken_snapshot
from tests.builders import START
from tests.contest import CLUSTERS, blueprint, with_hub_cohort, work
from tests.loops.bench import start
from tests.loops.test_watch_copies import MOMENT_S, Watched, watch

_HOUR = timedelta(hours=1)
HOME, FINLAND, OHIO = (ClusterName(name) for name in CLUSTERS)


class Contest:
    """The scene of tests/contest.py with a daemon that dispatches and watches, and what is asked of it."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.bench = watched.bench
        self.twice: list[str] = []

    def submit(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            self.bench.fleet.submit(manifest)

    async def step(self, seconds: float = MOMENT_S) -> None:
        await self.watched.step(seconds)
        self.twice += [uid for uid, places in self._pods().items() if len(places) > 1]

    def _pods(self) -> dict[str, list[str]]:
        """Where each workload of ours has pods now."""
        found: dict[str, list[str]] = {}
        for name, view in self.bench.state.worker_views().items():
            for copy in view.copies.values():
                if copy.ours and copy.bound_pods:
                    found.setdefault(copy.name, []).append(name)
        return found

    async def until(self, done: object, within_s: float = 30.0, step_s: float = MOMENT_S) -> None:
        passed = 0.0
        while not done():  # type: ignore[operator]
            assert passed < within_s, f"not within {within_s} s: {self.bench.phases()} {self.said()}"
            await self.step(step_s)
            passed += step_s

    def said(self) -> list[str]:
        """The newest decisions in words, and what was found: for a test that fails."""
        decisions = [sentence(decision) for decision in self.bench.state.latest.values()]
        return [*decisions, *(finding.code for finding in self.bench.state.findings)]

    async def running(self, *jobs: str) -> list[str]:
        """Wait until they have pods; where they run."""
        await self.until(lambda: all(self.runs_on(job) for job in jobs))
        return [self.runs_on(job) for job in jobs]

    def runs_on(self, job: str) -> str:
        found = self.bench.find(job)
        places = self._pods().get(found.name, []) if found is not None else []
        return places[0] if found is not None and places == [found.cluster_name] else ""

    def candidate(self, job: str, cluster: ClusterName) -> Candidate:
        found = self.bench.decision(job).candidate(cluster)
        assert found is not None
        return found

    def reasons(self, job: str, cluster: ClusterName) -> set[Reason]:
        return {rejection.reason for rejection in self.candidate(job, cluster).rejections}

    def told(self, job: str, reason: str) -> list[str]:
        return [message for kind, message in self.bench.events(job) if kind == reason]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Rendered]:
    """The rules, and the objects that a fleet is made of."""
    loaded = load_blueprint(blueprint(tmp_path_factory.mktemp("contest") / "blueprint"), START)
    assert loaded.blueprint is not None, [problem.text() for problem in loaded.errors]
    assert loaded.policy is not None
    return loaded.policy, with_hub_cohort(render(loaded.blueprint))


@pytest_asyncio.fixture
async def contest(tmp_path: Path, scene: tuple[Policy, Rendered]) -> AsyncIterator[Contest]:
    policy, plan = scene
    bench = await start(tmp_path, fleet=EmbeddedFleet.of_plan(plan, ManualClock(START)), policy=policy)
    found = Contest(watch(bench))
    yield found
    assert found.twice == [], "something ran twice"
    await bench.store.close()


# --- a cohort on a worker ----------------------------------------------------------------------------------------


async def test_an_owner_is_nominated_where_its_quota_is_lent_and_kueue_takes_it_back(contest: Contest) -> None:
    contest.submit(work("borrower", "borrowers", HOME, FINLAND))
    (first,) = await contest.running("borrower")
    other = ClusterName(({HOME, FINLAND} - {first}).pop())
    contest.submit(work("blocker", "borrowers", other, duration="20s"))
    await contest.running("blocker")
    contest.submit(work("owner", "lenders", ClusterName(first)))
    await contest.until(lambda: contest.runs_on("owner") == first)
    decision = contest.bench.decision("owner")
    (chosen,) = [c for c in decision.candidates if c.cluster == first]
    assert (decision.outcome, decision.chosen, chosen.fit) == (Outcome.NOMINATE, first, Fit.BY_PREEMPTION)
    assert [(v.key, v.reclaimed) for v in chosen.preempts] == [(contest.bench.workload("borrower").key, True)]
    assert len(contest.told("borrower", "ReclaimedOnWorker")) == 1
    assert "InCohortReclamation" in contest.told("borrower", "ReclaimedOnWorker")[0]
    await contest.until(lambda: contest.runs_on("borrower") == other, within_s=60.0, step_s=0.2)
    again = contest.bench.decision("borrower")
    assert (again.chosen, again.attempt) == (other, 2)
    assert Reason.RECLAIMED in contest.reasons("borrower", ClusterName(first))


async def test_what_was_taken_back_waits_and_does_not_come_back_while_it_would_be_taken_again(
    contest: Contest,
) -> None:
    """The borrower may go nowhere else. The owner's work ends and another follows at once: no ping-pong between."""
    contest.submit(work("borrower", "borrowers", HOME))
    await contest.running("borrower")
    contest.submit(work("owner", "lenders", HOME, duration="30s"))
    await contest.running("owner")
    await contest.until(lambda: contest.bench.phase("borrower") is Phase.WAITING)
    await contest.until(lambda: contest.bench.phase("owner") is Phase.FINISHED, within_s=60.0, step_s=0.5)
    await contest.until(lambda: contest.reasons("borrower", HOME) == {Reason.RECLAIMED}, step_s=0.5)
    assert contest.candidate("borrower", HOME).fit is Fit.NOW, "it is free, and was taken back a moment ago"
    contest.submit(work("next", "lenders", HOME, duration="30s"))
    await contest.running("next")
    assert contest.bench.decision("borrower").attempt == 2
    assert contest.watched.counted(FindingCode.COPY_RECLAIMED) == 1
    await contest.until(lambda: contest.runs_on("borrower") == HOME, within_s=EXCLUSION_S + 60.0, step_s=5.0)


async def test_borrowed_quota_counts_as_a_risk_and_own_quota_does_not(contest: Contest) -> None:
    contest.submit(work("borrower", "borrowers", HOME), work("owner", "lenders", FINLAND))
    await contest.running("borrower", "owner")

    def threats(job: str, cluster: ClusterName) -> list[str]:
        (term,) = [t for t in contest.candidate(job, cluster).terms if t.kind is TermKind.INTERRUPTION]
        return [line.what for line in term.bill]

    assert "borrowed quota that is taken back" in threats("borrower", HOME)
    assert threats("owner", FINLAND) == []


async def test_where_it_may_not_take_back_an_owner_waits(contest: Contest) -> None:
    """On the workers `hub-lenders` borrow like all others: they own nothing there and stop nobody."""
    contest.submit(work("borrower", "borrowers", HOME))
    await contest.running("borrower")
    contest.submit(work("asks", "hub-lenders", HOME))
    await contest.until(lambda: contest.bench.phase("asks") is Phase.WAITING)
    await contest.step(1.0)
    assert contest.candidate("asks", HOME).fit is Fit.WHEN_OTHERS_LEAVE
    assert contest.runs_on("borrower") == HOME


# --- a cohort on the hub -----------------------------------------------------------------------------------------


async def test_a_reclaim_on_the_hub_is_followed(contest: Contest) -> None:
    contest.submit(work("borrower", "hub-borrowers", HOME, FINLAND))
    await contest.running("borrower")
    contest.submit(work("owner", "hub-lenders", HOME, FINLAND, duration="30s"))
    await contest.until(lambda: contest.bench.phase("borrower") in (Phase.EVICTING, Phase.NO_QUOTA))
    await contest.running("owner")
    assert contest.bench.workload("borrower").quota_reserved_at is None
    (finding,) = [f for f in contest.bench.state.findings if f.code is FindingCode.HUB_PREEMPTED]
    assert (finding.key, finding.detail.reason) == (contest.bench.workload("borrower").key, "InCohortReclamation")
    assert len(contest.told("borrower", "PreemptedOnHub")) == 1
    assert contest.told("borrower", "EvictedOnWorker") == [], "what the hub ends accuses no worker"
    assert contest.bench.state.avoided.get(contest.bench.workload("borrower").uid, ()) == ()
    await contest.until(lambda: bool(contest.runs_on("borrower")), within_s=90.0, step_s=0.5)
    assert contest.bench.phase("owner") is Phase.FINISHED
    assert contest.bench.decision("borrower").attempt == 2
    assert contest.watched.codes() == []


# --- a start that stops somebody ---------------------------------------------------------------------------------


async def fill(contest: Contest, jobs: Iterable[dict[str, Any]]) -> None:
    """Low priority in the queue of the owners, on every cluster."""
    manifests = list(jobs)
    contest.submit(*manifests)
    await contest.running(*(manifest["metadata"]["name"] for manifest in manifests))


async def test_an_urgent_job_goes_where_its_preemption_costs_least(contest: Contest) -> None:
    """Four restarts where the GPUs are cheapest, one where they are dear: what is lost decides, and not the price."""
    await fill(
        contest,
        [
            *(work(f"home-{n}", "lenders", HOME, gpus=2) for n in range(4)),
            work("ohio-0", "lenders", OHIO),
            *(work(f"finland-{n}", "lenders", FINLAND, gpus=4) for n in range(2)),
        ],
    )
    contest.submit(work("urgent", "lenders", priority="release-gate", says={"expected-duration": "PT10M"}))
    await contest.until(lambda: bool(contest.runs_on("urgent")))
    decision = contest.bench.decision("urgent")
    costs = {c.cluster: [t.amount_usd_micro for t in c.terms if t.kind is TermKind.PREEMPTION] for c in rivals(contest)}
    assert {c.fit for c in rivals(contest)} == {Fit.BY_PREEMPTION}
    least = min(rivals(contest), key=lambda c: c.total_usd_micro or 0).cluster
    assert (decision.chosen, contest.runs_on("urgent")) == (least, least)
    assert costs[OHIO] < costs[HOME], "one restart costs less than four"
    stopped = {v.key.partition("/")[2] for v in contest.candidate("urgent", least).preempts}
    evicted = {contest.bench.workload(job).name for job in jobs_of(least) if not contest.runs_on(job)}
    assert stopped == evicted, "Kueue stopped whom the decision named"
    assert all(contest.runs_on(job) for cluster in CLUSTERS for job in jobs_of(cluster) if cluster != least)
    record = await contest.bench.store.record(decision.id)
    assert record is not None
    assert len(record.inputs.snapshot.stakes) == 7, "what the hub knew of everybody who might have been stopped"
    assert replay(record.inputs) == decision


def rivals(contest: Contest) -> list[Candidate]:
    return [contest.candidate("urgent", name) for name in (HOME, FINLAND, OHIO)]


def jobs_of(cluster: str) -> list[str]:
    return {HOME: [f"home-{n}" for n in range(4)], FINLAND: ["finland-0", "finland-1"], OHIO: ["ohio-0"]}[
        ClusterName(cluster)
    ]


async def test_whom_the_decision_names_is_whom_kueue_stops(contest: Contest) -> None:
    """As on real clusters (tests/local/test_contest_for_real.py): what is lent, then the newest of the lowest."""
    for name, queue, priority in (
        ("old", "lenders", "research"),
        ("dear", "lenders", "production"),
        ("borrower", "borrowers", "production"),
        ("new", "lenders", "research"),
    ):
        contest.submit(work(name, queue, HOME, gpus=2, priority=priority))
        await contest.running(name)
        await contest.step(2.0)
    contest.submit(work("urgent", "lenders", HOME, gpus=4, priority="release-gate"))
    await contest.until(lambda: contest.runs_on("urgent") == HOME)
    victims = contest.candidate("urgent", HOME).preempts
    named = [contest.bench.workload(name).key for name in ("borrower", "new")]
    assert [(victim.key, victim.reclaimed) for victim in victims] == [(named[0], True), (named[1], False)]
    assert [contest.runs_on(name) for name in ("old", "dear", "borrower", "new")] == [HOME, HOME, "", ""]


async def test_a_checkpoint_makes_the_cheaper_victim(contest: Contest) -> None:
    """Both have run for six hours; one of them saves its work every ten minutes."""
    saves = {"checkpoint": "lake-de/runs/a", "checkpoint-interval": "PT10M", "checkpoint-size": "1GB"}
    await fill(
        contest,
        [
            work("saved", "lenders", OHIO, duration="36000s", says=saves),
            work("unsaved", "lenders", HOME, duration="36000s"),
            work("other", "lenders", FINLAND, duration="36000s"),
        ],
    )
    await contest.until(lambda: contest.bench.clock.now() - START > (6 * _HOUR), within_s=40_000, step_s=600.0)
    contest.submit(work("urgent", "lenders", priority="release-gate", says={"expected-duration": "PT10M"}))
    await contest.until(lambda: contest.bench.find("urgent") is not None and bool(contest.runs_on("urgent")))
    (victim,) = contest.candidate("urgent", OHIO).preempts
    assert (victim.checkpoint_s, victim.lost_s) == (600, 300)
    (unsaved,) = contest.candidate("urgent", HOME).preempts
    assert (unsaved.lost_s or 0) >= 6 * 3600 - 60
    assert contest.runs_on("urgent") == OHIO


async def test_a_snapshot_file_tells_of_a_preemption_what_the_daemon_tells(contest: Contest) -> None:
    """Whom it would stop on each cluster, what they lose and what that costs; one of an earlier version knows less."""
    saves = {"checkpoint": "lake-de/runs/a", "checkpoint-interval": "PT10M", "checkpoint-size": "1GB"}
    named = {"entrepot.dev/workload-class": "evaluation"}
    await fill(
        contest,
        [
            work("saved", "lenders", OHIO, duration="36000s", says=saves),
            work("unsaved", "lenders", HOME, duration="36000s"),
            work("other", "lenders", FINLAND, duration="36000s", labels=named),
        ],
    )
    bench = contest.bench
    await contest.until(lambda: bench.clock.now() - START > _HOUR, within_s=8_000, step_s=600.0)
    contest.submit(work("urgent", "lenders", priority="release-gate", says={"expected-duration": "PT10M"}))
    bench.clock.advance(1.0)
    bench.fleet.advance()
    state, now = bench.state, bench.clock.now()
    file = encode_snapshot(taken_snapshot(state.hub_view(), state.snapshot(now), state.policy.digest, now))
    await bench.dispatch.cycle()
    told = bench.decision("urgent")
    record = await bench.store.record(told.id)
    assert record is not None

    taken = decode_snapshot(file)
    assert taken.running is not None
    offline = decide_knowing(record.inputs.request, taken.snapshot, state.policy, taken.taken_at, taken.running)
    assert [c.preempts for c in offline.candidates] == [c.preempts for c in told.candidates]
    assert [c.terms for c in offline.candidates] == [c.terms for c in told.candidates]
    assert (offline.chosen, why(offline)) == (told.chosen, why(told))
    assert any(victim.checkpoint_s == 600 for c in offline.candidates for victim in c.preempts)

    earlier = json.loads(file)
    del earlier["running"]
    old = decode_snapshot(json.dumps(earlier).encode())
    assert old.running is None
    less = decide_knowing(record.inputs.request, old.snapshot, state.policy, old.taken_at, {})
    assert [c.fit for c in less.candidates] == [c.fit for c in told.candidates]
    assert why(less) != why(told), "or the file need hold nothing more"


def why(decision: Decision) -> list[str]:
    """What is said of everybody who would be stopped."""
    return [victim_text(victim) for candidate in decision.candidates for victim in candidate.preempts]


async def test_a_class_that_is_not_to_be_stopped_keeps_its_place(contest: Contest) -> None:
    await fill(
        contest,
        [work("serves", "lenders", HOME, labels={"entrepot.dev/workload-class": "inference"})],
    )
    contest.submit(work("urgent", "lenders", HOME, priority="release-gate"))
    await contest.until(lambda: contest.bench.phase("urgent") is Phase.WAITING)
    await contest.step(1.0)
    assert contest.reasons("urgent", HOME) == {Reason.NOT_PREEMPTIBLE}
    assert contest.runs_on("serves") == HOME


async def test_the_same_priority_stops_nobody(contest: Contest) -> None:
    await fill(contest, [work("first", "lenders", HOME)])
    contest.submit(work("second", "lenders", HOME))
    await contest.until(lambda: contest.bench.phase("second") is Phase.WAITING)
    await contest.step(1.0)
    assert contest.candidate("second", HOME).fit is Fit.WHEN_OTHERS_LEAVE
    assert contest.runs_on("first") == HOME
