"""What other rules would do: to passages of data through the fleet, to data at rest, to work that waits and runs.

Two policies, the same work, the same instant, the same judge as in decisions. Widening is the dangerous direction and
is a finding of its own kind. Work of one shape (same queue, data, stores, GPUs asked for) is judged once: thousands of
workloads have some hundreds of shapes, and what a memo saves is exactly what would come out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.blame import denied_by, harshest
from dispatcher.core.context import class_of, estimate_of
from dispatcher.core.decision import Rejection
from dispatcher.core.ids import ClusterName, FlavorName
from dispatcher.core.legality import ruling_on
from dispatcher.core.passages import Passage, Rest, passages, rests
from dispatcher.core.policy import ClusterPolicy, FlavorPolicy, Policy
from dispatcher.core.prices import compute_amount, gpu_price
from dispatcher.core.rulings import labels_carried
from dispatcher.core.selectors import FlavorVerdict, match_flavor
from dispatcher.core.touched import Touched
from dispatcher.core.work import Stage, Work
from dispatcher.core.workload import PodSet, Request, WorkloadClass
from residency.obligations import Obligation
from residency.plans import Ruling
from residency.verdict import Verdict
from residency.vocabulary import Flow, Running

Bound = tuple[Flow, Obligation]


class Effect(StrEnum):
    """What other rules do to something. Stable codes, the dangerous direction first."""

    WIDENED = "widened"
    """It may go where it might not."""
    DENIED_RUNNING = "newly-denied-running"
    """It runs where it would be illegal."""
    DENIED_NOMINATED = "newly-denied-nominated"
    """It stands nominated where it would be illegal."""
    DENIED_QUEUED = "newly-denied-queued"
    """It waits, and no legal cluster would be left."""
    NARROWED = "narrowed"
    """Fewer clusters would be legal, and some still are."""
    BOUND = "obligations-added"
    """It may go on, under duties that it does not have today."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A cluster on which the answer turns, with the verdict that decides against it: under the old rules for one that
    opens, under the new ones for one that closes. `permits` are the rules or exceptions that open it."""

    cluster: ClusterName
    because: Verdict | None
    permits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one workload. `was` and `now` are the legal clusters among those it may use at all; `stands` are
    turns where it is now. `course` is what the deciding rule does to work that runs. Money and GPU time are of one
    whole run, where it is or where it would cost least; None: not known."""

    work: Work
    effects: tuple[Effect, ...]
    was: tuple[ClusterName, ...]
    now: tuple[ClusterName, ...]
    opened: tuple[Turn, ...]
    closed: tuple[Turn, ...]
    stands: tuple[Turn, ...]
    bound: tuple[Bound, ...]
    course: Running | None
    gpu_seconds: int
    usd_micro: int | None


@dataclass(frozen=True, slots=True)
class Total:
    """How much work an effect meets. `unpriced` of the workloads have no known price: their money is not in the sum."""

    count: int = 0
    gpu_seconds: int = 0
    usd_micro: int = 0
    unpriced: int = 0

    def plus(self, change: Change) -> Total:
        priced = change.usd_micro is not None
        return Total(
            self.count + 1,
            self.gpu_seconds + change.gpu_seconds,
            self.usd_micro + (change.usd_micro or 0),
            self.unpriced + (0 if priced else 1),
        )


@dataclass(frozen=True, slots=True)
class Impact:
    """Everything that differs between two policies; nothing of what stays the same."""

    opened: tuple[Passage, ...]
    closed: tuple[Passage, ...]
    rests: tuple[Rest, ...]
    changes: tuple[Change, ...]
    looked_at: int
    """Workloads that were judged."""

    @property
    def empty(self) -> bool:
        return not (self.opened or self.closed or self.rests or self.changes)

    @property
    def widened(self) -> bool:
        return bool(self.opened) or any(Effect.WIDENED in change.effects for change in self.changes)

    def of(self, effect: Effect) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if effect in change.effects)

    def total(self, effect: Effect) -> Total:
        total = Total()
        for change in self.of(effect):
            total = total.plus(change)
        return total


def impact(base: Policy, head: Policy, work: Sequence[Work], now: datetime) -> Impact:
    """What taking `head` instead of `base` does, at an instant. Without work: to catalog and fleet alone."""
    if base is head:
        return Impact((), (), (), (), len(work))
    comparison = Comparison(base, head, now)
    changes = (comparison.change(one) for one in work)
    opened, closed = passages(base, head, now)
    return Impact(opened, closed, rests(base, head, now), tuple(c for c in changes if c is not None), len(work))


# --- one policy's answers ------------------------------------------------------------------------------------------


Shape = tuple[object, ...]


@dataclass(slots=True)
class Counsel:
    """What one policy says of work, remembered by shape."""

    policy: Policy
    now: datetime
    _named: frozenset[str] = field(init=False)
    _known: dict[tuple[Shape, ClusterName, tuple[FlavorName, ...]], Ruling] = field(default_factory=dict)

    def __post_init__(self) -> None:
        exceptions = self.policy.residency.exceptions
        self._named = frozenset(name for one in exceptions for name in one.scope.workloads)

    def shape(self, request: Request) -> Shape:
        """All of a request that a ruling may depend on. A workload that an exception names is like no other."""
        says = request.declared
        end_s = self.duration_s(request) if self.policy.residency.settings.must_cover_expected_runtime else None
        return (
            request.hub_queue,
            says.workload_class,
            tuple(use.data_set for use in says.data),
            says.checkpoint.store if says.checkpoint is not None else None,
            says.outputs.store if says.outputs is not None else None,
            tuple((p.per_pod.gpus() > 0, p.selector, p.terms) for p in request.pod_sets),
            end_s,
            request.key if request.key in self._named else None,
        )

    def duration_s(self, request: Request) -> int | None:
        """How long it is expected to run; None where the plan knows no class of it."""
        try:
            plan = self.policy.classes.get(class_of(request, self.policy))
        except ValueError:
            return request.declared.expected_duration_s
        return estimate_of(request, plan).duration_s if plan is not None else request.declared.expected_duration_s

    def ruling(
        self, request: Request, shape: Shape, cluster: ClusterName, flavors: tuple[FlavorName, ...] = ()
    ) -> Ruling | None:
        """On one cluster; None for one that the policy does not have, where nothing may go. Where flavors are not known
        it is legal if one of those that its pods may take is."""
        site = self.policy.clusters.get(cluster)
        if site is None:
            return None
        key = (shape, cluster, flavors)
        found = self._known.get(key)
        if found is None:
            found = self._judge(request, site, flavors)
            self._known[key] = found
        return found

    def _judge(self, request: Request, site: ClusterPolicy, flavors: tuple[FlavorName, ...]) -> Ruling:
        seconds = self.duration_s(request)
        end = self.now + timedelta(seconds=seconds) if seconds is not None else None
        first: Ruling | None = None
        for choice in (flavors,) if flavors else self.choices(request, site):
            ruling = ruling_on(request, site, self.policy, self.now, choice, end)
            if ruling.allowed:
                return ruling
            first = first or ruling
        assert first is not None
        return first

    def choices(self, request: Request, site: ClusterPolicy) -> tuple[tuple[FlavorName, ...], ...]:
        """The flavors that the pods may take, one for each product; () where none of them fits, for all of them."""
        gangs = [pod_set for pod_set in request.pod_sets if pod_set.per_pod.gpus()]
        fitting = {f.product: f.name for f in site.flavors.values() if any(self._fits(p, f) for p in gangs)}
        return tuple((name,) for _, name in sorted(fitting.items(), key=lambda pair: str(pair[0]))) or ((),)

    def _fits(self, pod_set: PodSet, flavor: FlavorPolicy) -> bool:
        if flavor.product is None:
            return False
        found = match_flavor(pod_set, dict(flavor.labels), flavor.product, self.policy.products)
        return found.verdict is FlavorVerdict.MATCH

    def cost_usd_micro(self, request: Request, cluster: ClusterName, flavors: tuple[FlavorName, ...]) -> int | None:
        """One run's GPUs at the price of the cheapest flavor that it may have there; None: not known."""
        site, seconds = self.policy.clusters.get(cluster), self.duration_s(request)
        if site is None or seconds is None:
            return None
        total = 0
        for pod_set in request.pod_sets:
            gpus = pod_set.per_pod.gpus() * pod_set.count
            names = flavors or tuple(f.name for f in site.flavors.values() if self._fits(pod_set, f))
            took = (gpus, seconds, request.declared.workload_class)
            amounts = [self._price(site, site.flavors.get(name), *took) for name in names] if gpus else [0]
            known = [amount for amount in amounts if amount is not None]
            if not known:
                return None
            total += min(known)
        return total

    def _price(
        self, site: ClusterPolicy, flavor: FlavorPolicy | None, gpus: int, seconds: int, kind: WorkloadClass | None
    ) -> int | None:
        if flavor is None or flavor.product is None:
            return None
        price = gpu_price(site, flavor, self.policy.prices, self.now)
        if isinstance(price, Rejection):
            return None
        return compute_amount(price, gpus * 1000, seconds, flavor.speed(kind))


# --- two policies' answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shift:
    """What happens to all work of one shape."""

    was: tuple[ClusterName, ...]
    now: tuple[ClusterName, ...]
    opened: tuple[Turn, ...]
    closed: tuple[Turn, ...]
    bound: tuple[Bound, ...]


@dataclass(slots=True)
class Comparison:
    """Two policies side by side, at an instant. Keeps what it has worked out for each shape of work."""

    base: Policy
    head: Policy
    now: datetime
    _before: Counsel = field(init=False)
    _after: Counsel = field(init=False)
    _touched: Touched = field(init=False)
    _shifts: dict[tuple[Shape, Shape, tuple[ClusterName, ...]], _Shift] = field(default_factory=dict)
    _differ: dict[Shape, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._touched = Touched(self.base, self.head)
        self._before, self._after = Counsel(self.base, self.now), Counsel(self.head, self.now)

    def change(self, work: Work) -> Change | None:
        """What becomes of one workload; None when nothing does."""
        request = work.request
        shapes = (self._before.shape(request), self._after.shape(request))
        if not self._may_differ(request, shapes[0]):
            return None
        shift = self._shift(request, shapes)
        stands, bound, course = self._where_it_is(work, shapes)
        if work.stage is Stage.QUEUED:
            bound = shift.bound
        effects = _effects(work.stage, shift, stands, bound)
        if not effects:
            return None
        return Change(
            work=work,
            effects=effects,
            was=shift.was,
            now=shift.now,
            opened=shift.opened,
            closed=shift.closed,
            stands=stands,
            bound=bound,
            course=course,
            gpu_seconds=self._gpu_seconds(request),
            usd_micro=self._cost(work, shift.was),
        )

    def _may_differ(self, request: Request, shape: Shape) -> bool:
        """Whether any label that it carries is touched. What a workload carries does not depend on where it goes."""
        known = self._differ.get(shape)
        if known is None:
            known = any(self._touched.label(label) for label in labels_carried(request, self.base, self.now))
            self._differ[shape] = known
        return known

    def _shift(self, request: Request, shapes: tuple[Shape, Shape]) -> _Shift:
        usable = _usable(request)
        key = (*shapes, usable)
        found = self._shifts.get(key)
        if found is None:
            found = self._work_out(request, shapes, usable)
            self._shifts[key] = found
        return found

    def _work_out(self, request: Request, shapes: tuple[Shape, Shape], usable: tuple[ClusterName, ...]) -> _Shift:
        was: list[ClusterName] = []
        now: list[ClusterName] = []
        opened: list[Turn] = []
        closed: list[Turn] = []
        bound: dict[Bound, None] = {}
        for name in usable:
            before = self._before.ruling(request, shapes[0], name)
            after = self._after.ruling(request, shapes[1], name)
            legal = (_legal(before), _legal(after))
            was += [name] if legal[0] else []
            now += [name] if legal[1] else []
            if legal == (False, True) and after is not None:
                opened.append(Turn(name, denied_by(before, after), permits_of(after)))
            elif legal == (True, False):
                closed.append(Turn(name, denied_by(after, before)))
            elif before is not None and after is not None and all(legal):
                bound |= dict.fromkeys(added(before, after))
        return _Shift(tuple(was), tuple(now), tuple(opened), tuple(closed), tuple(bound))

    def _where_it_is(
        self, work: Work, shapes: tuple[Shape, Shape]
    ) -> tuple[tuple[Turn, ...], tuple[Bound, ...], Running | None]:
        turns: list[Turn] = []
        bound: dict[Bound, None] = {}
        courses: list[Running] = []
        for name, flavors in work.places:
            before = self._before.ruling(work.request, shapes[0], name, flavors)
            after = self._after.ruling(work.request, shapes[1], name, flavors)
            if _legal(before) and not _legal(after):
                chief = denied_by(after, before)
                turns.append(Turn(name, chief))
                courses += [chief.on_change.running] if chief is not None else []
            elif before is not None and after is not None and _legal(before):
                bound |= dict.fromkeys(added(before, after))
        return tuple(turns), tuple(bound), harshest(courses)

    def _gpu_seconds(self, request: Request) -> int:
        gpus = sum(pod_set.per_pod.gpus() * pod_set.count for pod_set in request.pod_sets)
        return gpus * (self._before.duration_s(request) or 0)

    def _cost(self, work: Work, was: tuple[ClusterName, ...]) -> int | None:
        places: Iterable[tuple[ClusterName, tuple[FlavorName, ...]]] = work.places or ((name, ()) for name in was)
        amounts = [self._before.cost_usd_micro(work.request, name, flavors) for name, flavors in places]
        return min((amount for amount in amounts if amount is not None), default=None)


def _usable(request: Request) -> tuple[ClusterName, ...]:
    """The clusters that it may be nominated to at all, by the hub and by its owner."""
    names = request.declared.clusters
    return tuple(name for name in request.listed_clusters if names is None or name in names)


def _legal(ruling: Ruling | None) -> bool:
    return ruling is not None and ruling.allowed


def permits_of(ruling: Ruling) -> tuple[str, ...]:
    """The rules that grant, and the exceptions without which they would not."""
    rules = {name for verdict in ruling.verdicts for name in verdict.permits}
    waivers = {name for verdict in ruling.verdicts for name in verdict.exceptions}
    return (*sorted(waivers), *sorted(rules))


def added(before: Ruling, after: Ruling) -> tuple[Bound, ...]:
    """Duties that were not there, or were milder."""
    return tuple(one for one in after.obligations if one not in before.obligations)


def _effects(stage: Stage, shift: _Shift, stands: tuple[Turn, ...], bound: tuple[Bound, ...]) -> tuple[Effect, ...]:
    found: list[Effect] = []
    if shift.opened:
        found.append(Effect.WIDENED)
    if stands:
        found.append(Effect.DENIED_RUNNING if stage is Stage.RUNNING else Effect.DENIED_NOMINATED)
    if stage is Stage.QUEUED and shift.was and not shift.now:
        found.append(Effect.DENIED_QUEUED)
    elif shift.closed:
        found.append(Effect.NARROWED)
    if bound:
        found.append(Effect.BOUND)
    return tuple(found)
