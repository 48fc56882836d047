"""Laws of preemptions: whom we say Kueue stops is whom it stops, and the cluster where that costs least is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from connectors.embedded import EmbeddedFleet, ManualClock, WorkerSpec
from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision, Fit
from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.preemption import Preemptor, Target, holders_of, once_gone
from dispatcher.core.quota import quota_tree
from dispatcher.core.snapshot import CohortView, Snapshot, Stake, WorkerView
from dispatcher.core.workload import WorkloadClass
from tests import builders as b
from tests.core_builders import (
    NOW,
    QUEUE,
    USD,
    compute,
    copy,
    nodes,
    plan,
    pods,
    policy,
    queue,
    quota,
    request,
    seen,
    site,
    worker,
)
from tests.examples import examples
from tests.property.worlds import World

NAMES = ("cloud", "onprem", "x", "y")
few = examples(80)


# --- the choice --------------------------------------------------------------------------------------------------


@st.composite
def full_clusters(draw: st.DrawFn, name: str) -> WorkerView:
    """Eight GPUs, held by work of lower priority in the queue itself or by borrowers of which little is known."""
    sizes = draw(st.sampled_from(((8,), (4, 4), (2, 2, 4), (2, 2, 2, 2))))
    lent = draw(st.booleans())
    holder = "local" if lent and draw(st.booleans()) else "other" if lent else QUEUE
    queues = [
        queue(
            quotas=quota(8, used=0 if lent else 8),
            cohort="all",
            preempts_lower_priority=draw(st.booleans()),
            reclaims_within_cohort=True,
            reclaims_any=draw(st.booleans()),
        ),
        queue("other", quota(0, used=8 if holder == "other" else 0), cohort="all"),
        queue("local", quota(0, used=8 if holder == "local" else 0), cohort="all"),
    ]
    copies = [
        replace(
            copy(f"{name}-{n}", size, priority=draw(st.integers(0, 60)), queue_name=holder, ours=holder != "local"),
            admitted_at=NOW - timedelta(minutes=draw(st.integers(0, 900))),
        )
        for n, size in enumerate(sizes)
    ]
    return worker(name, nodes(1, used=8), queues, copies=copies, cohorts=[CohortView("all")])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Clusters that are full, of which some would have to stop somebody and one may have room."""
    names = NAMES[: draw(st.integers(2, 4))]
    prices = [compute(name, draw(st.integers(1, 9)) * USD) for name in names]
    book = policy([site(name, "DE") for name in names], prices)
    plans = {kind: plan(kind, draw(st.sampled_from((0, 6 * USD))), restart_s=600) for kind in WorkloadClass}
    plans[WorkloadClass.INFERENCE] = replace(plans[WorkloadClass.INFERENCE], preemptible=False)
    other = replace(book.queues[QUEUE], name=QueueName("other"))
    book = replace(book, classes=plans, queues={**book.queues, QueueName("other"): other})
    views = [draw(full_clusters(name)) for name in names]
    if draw(st.booleans()):
        views[0] = worker(names[0], nodes(1))
    kinds = st.sampled_from((None, WorkloadClass.TRAINING, WorkloadClass.INFERENCE))
    stakes = {
        f"team/{copied.name}": Stake(draw(kinds), draw(st.sampled_from((None, 600, 7200))))
        for view in views
        for copied in view.copies.values()
        if draw(st.booleans())
    }
    wanted = request("urgent", pods(1, draw(st.sampled_from((4, 8)))), priority=draw(st.integers(0, 60)))
    return World(wanted, Snapshot(tuple(seen(v) for v in views), stakes=dict(sorted(stakes.items()))), book)


def preempting(decision: Decision) -> list[Any]:
    return [c for c in decision.candidates if c.fit is Fit.BY_PREEMPTION]


@few
@given(worlds(), st.data())
def test_removing_a_loser_never_changes_the_winner(world: World, data: st.DataObject) -> None:
    decision = world.decide()
    losers = [c.name for c in world.snapshot.clusters if c.name != decision.chosen]
    gone = data.draw(st.sampled_from(losers))
    rest = tuple(c for c in world.snapshot.clusters if c.name != gone)
    assert replace(world, snapshot=replace(world.snapshot, clusters=rest)).decide().chosen == decision.chosen


@few
@given(worlds(), st.integers(0, 9))
def test_a_winner_whose_victims_get_cheaper_stays_the_winner(world: World, tenths: int) -> None:
    """They have run for less time: nobody else is stopped for that, and less is lost."""
    decision = world.decide()
    assume(decision.chosen is not None and decision.candidate(decision.chosen).preempts)  # type: ignore[union-attr]
    changed = tuple(
        replace(c, worker=_younger(c.worker, tenths)) if c.name == decision.chosen and c.worker is not None else c
        for c in world.snapshot.clusters
    )
    after = replace(world, snapshot=replace(world.snapshot, clusters=changed)).decide()
    before, now = (d.candidate(decision.chosen) for d in (decision, after))  # type: ignore[arg-type]
    assert before is not None
    assert now is not None
    assume((now.total_usd_micro or 0) <= (before.total_usd_micro or 0))  # a first checkpoint may have come between
    assert after.chosen == decision.chosen


def _younger(view: WorkerView, tenths: int) -> WorkerView:
    copies = {
        key: replace(c, admitted_at=NOW - (NOW - c.admitted_at) * tenths // 10 if c.admitted_at else None)
        for key, c in view.copies.items()
    }
    return replace(view, copies=copies)


@few
@given(worlds())
def test_what_is_not_known_of_a_victim_never_beats_what_is_known_of_others(world: World) -> None:
    decision = world.decide()
    if decision.chosen is None:
        return
    winner = decision.candidate(decision.chosen)
    assert winner is not None
    rivals = [c for c in decision.candidates if c.eligible]
    assert winner.loss_known or not any(c.loss_known for c in rivals)
    assert winner.fit is Fit.NOW or not any(c.fit is Fit.NOW for c in rivals)
    peers = [c for c in rivals if (c.fit, c.loss_known) == (winner.fit, winner.loss_known)]
    assert winner.total_usd_micro == min(c.total_usd_micro or 0 for c in peers)


@few
@given(worlds())
def test_those_who_would_be_stopped_may_be_and_are_as_few_as_will_do(world: World) -> None:
    by_name = {c.name: c.worker for c in world.snapshot.clusters}
    for candidate in preempting(world.decide()):
        view = by_name[candidate.cluster]
        assert view is not None
        assert candidate.queue is not None
        tree, ours = quota_tree(view), view.queues[candidate.queue]
        stopped = [h for hs in holders_of(view, tree).values() for h in hs if _key(h) in _keys(candidate)]
        need = world.request.pod_sets[0].per_pod.times(world.request.pod_sets[0].count)
        fr = (FlavorName("h100"), b.GPU)
        for victim in candidate.preempts:
            lower = victim.priority < world.request.priority
            allowed = ours.reclaims_any or lower if victim.reclaimed else ours.preempts_lower_priority and lower
            assert allowed
            assert victim.reclaimed == (victim.queue != candidate.queue)
        assert _free(tree, ours.name, fr, stopped) >= need.get(b.GPU)
        for spared in stopped:
            rest = [h for h in stopped if h is not spared]
            assert _free(tree, ours.name, fr, rest) < need.get(b.GPU), "one of them need not have gone"


def _key(holder: Any) -> str:
    return f"{holder.copy.namespace}/{holder.copy.name}"


def _keys(candidate: Any) -> set[str]:
    return {victim.key for victim in candidate.preempts}


def _free(tree: Any, name: QueueName, fr: Any, gone: list[Any]) -> int:
    found: int = once_gone(tree, [Target(holder, reclaimed=False) for holder in gone]).available(name, fr)
    return found


@few
@given(worlds())
def test_a_memo_changes_no_answer(world: World) -> None:
    memo = CandidateMemo()
    for after_s in (0, 3600):
        now = NOW + timedelta(seconds=after_s)
        args = (world.request, world.snapshot, world.policy, now)
        assert repr(decide(*args, memo)) == repr(decide(*args))


# --- Kueue as the embedded fleet plays it ------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A worker with three queues of one cohort, local work on it, and one more who wants to start."""

    nominal: tuple[int, int, int]
    rights: tuple[tuple[str, str], ...]
    jobs: tuple[tuple[int, int, str], ...]
    """Each in a queue, of a size, of a priority."""
    asks: tuple[int, int, str]
    """In a queue, by how much more than is free, of a priority."""


PRIORITIES = ("low", "normal", "high")
WITHIN, RECLAIM = ("Never", "LowerPriority"), ("Never", "LowerPriority", "Any")


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    some = st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(PRIORITIES))
    return Stage(
        (draw(st.integers(0, 8)), draw(st.integers(0, 8)), draw(st.integers(0, 6))),
        tuple((draw(st.sampled_from(WITHIN)), draw(st.sampled_from(RECLAIM))) for _ in range(3)),
        tuple(draw(st.lists(some, min_size=1, max_size=7))),
        draw(some),
    )


def staged(stage: Stage) -> EmbeddedFleet:
    objects = [b.namespace(), b.flavor("h100", {b.GPU_LABEL: "h100"}), *b.priority_classes()]
    for at, ((within, reclaim), nominal) in enumerate(zip(stage.rights, stage.nominal, strict=True)):
        preemption = {"withinClusterQueue": within, "reclaimWithinCohort": reclaim}
        lines = [b.quota(b.GPU, nominal), b.quota("cpu", 1000)]
        group = b.resource_group({"h100": lines})
        objects += [b.cluster_queue(f"q{at}", group, cohortName="all", preemption=preemption)]
        objects += [b.local_queue(f"q{at}", f"q{at}")]
    spec = WorkerSpec(objects, b.gpu_nodes(4))
    fleet = EmbeddedFleet(b.hub_objects("alpha"), {"alpha": spec}, ManualClock(b.START))
    fleet.connect()
    return fleet


@examples(60)
@given(stages())
def test_whom_we_say_kueue_stops_is_whom_it_stops(stage: Stage) -> None:
    """Local work fills three queues as far as it fits; then one more asks for a little more than is free."""
    fleet, fr = staged(stage), (FlavorName("h100"), b.GPU)

    def free(at: int) -> int:
        return quota_tree(fleet.worker_view("alpha")).available(QueueName(f"q{at}"), fr)

    def submit(name: str, at: int, size: int, priority: str) -> None:
        template = b.pod_template({b.GPU: size, "cpu": 1}, "4000s")
        fleet.submit(b.job(name, queue=f"q{at}", priority=priority, template=template), "alpha")
        fleet.clock.advance(3)  # type: ignore[attr-defined]
        fleet.advance()

    for number, (at, size, priority) in enumerate(stage.jobs):
        if size <= free(at):
            submit(f"j{number}", at, size, priority)
    view = fleet.worker_view("alpha")
    before = {key for key, c in view.copies.items() if c.quota_reserved_at is not None}
    at, more, named = stage.asks
    need = max(0, free(at)) + more
    tree, ours = quota_tree(view), view.queues[QueueName(f"q{at}")]
    preemptor = Preemptor(tree, ours, {"low": 10, "normal": 100, "high": 1000}[named], holders_of(view, tree))
    may = need <= tree.potential(ours.name, fr) and preemptor.may(fr, need)
    found = preemptor.targets({fr: need}, frozenset({fr})) if may else None
    said = {
        (t.holder.copy.namespace, t.holder.copy.name): "InCohortReclamation" if t.reclaimed else "InClusterQueue"
        for t in found or ()
    }
    stopped: dict[tuple[str, str], str] = {}
    fleet.clock.advance(0.0)  # type: ignore[attr-defined]
    template = b.pod_template({b.GPU: need, "cpu": 1}, "4000s")
    fleet.submit(b.job("asks", queue=f"q{at}", priority=named, template=template), "alpha")
    for _ in range(60):
        fleet.clock.advance(0.02)  # type: ignore[attr-defined]
        fleet.advance()
        after = fleet.worker_view("alpha").copies
        stopped |= {key: after[key].preempted_by for key in before if after[key].preempted_by}
    assert stopped == said
