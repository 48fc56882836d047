"""How a request fits one worker: per pod set, per resource group and flavor, by quota and by nodes.

Flavors are predicted as Kueue assigns them: in the order of the resource group, the first that matches and has quota
(kueue-contract section 12). Nodes are not asked by Kueue, so a flavor that has quota but no nodes is still the one it
takes, and then the pods would wait there: quota and nodes must both say yes, the smaller view counts (FR-SCO-10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from dispatcher.core.decision import Detail, Fit, Placement, Reason, Rejection, Resolver
from dispatcher.core.ids import FlavorName, QueueName
from dispatcher.core.index import demand_of
from dispatcher.core.nodes import toleration_of
from dispatcher.core.outlook import judge_nodes
from dispatcher.core.packing import PodGroup, pod_group
from dispatcher.core.place import Broken, Place, held_rejection, taint_rejection
from dispatcher.core.policy import Policy
from dispatcher.core.preemption import Preemptor, Target, once_gone
from dispatcher.core.quota import FlavorResource
from dispatcher.core.resources import PODS, is_gpu
from dispatcher.core.selectors import FlavorMatch, FlavorVerdict, match_flavor, untolerated
from dispatcher.core.snapshot import ClusterQueueView, Hold, ResourceGroup
from dispatcher.core.topology import TopologyWish
from dispatcher.core.workload import PodSet

SHAPES = 4096
"""Of so many shapes what fits one cluster is remembered: a worker that is cut off keeps its view, while new jobs go on
asking about it."""


class QuotaState(IntEnum):
    """How an amount meets a queue's quota, best first."""

    FITS = 0
    RECLAIM = 1
    PREEMPT = 2
    HELD = 3
    SHORT = 4
    NEVER = 5


@dataclass(frozen=True, slots=True)
class Pick:
    """The flavor that Kueue would give one pod set for one resource group, and how its quota stands."""

    flavor: FlavorName
    state: QuotaState
    resource: str = ""
    needed: int = 0
    found: int = 0


@dataclass(frozen=True, slots=True)
class FitReport:
    """How a request fits one cluster; rejections by the filter that reports them.

    `flavors` has the flavor that each pod set's accelerators (else its first resource group) would take, also where
    there is no room, so that every candidate can be priced. It lacks pod sets that no flavor accepts.
    """

    fit: Fit
    queue: QueueName | None = None
    placements: tuple[Placement, ...] = ()
    flavors: tuple[tuple[str, FlavorName], ...] = ()
    products: tuple[Rejection, ...] = ()
    quota: tuple[Rejection, ...] = ()
    nodes: tuple[Rejection, ...] = ()
    held: tuple[Rejection, ...] = ()
    broken: tuple[Broken, ...] = ()
    borrows: bool = False
    """Whether the queue would use more than its own quota, which the owner may take back."""
    targets: tuple[Target, ...] = ()
    """Whom Kueue would stop for it, where it fits by preemption."""


UNKNOWN_FIT = FitReport(Fit.UNKNOWN)


class _Fitted(NamedTuple):
    """A fit, with what it was judged by that its key does not name."""

    holds: tuple[Hold, ...]
    policy: Policy
    report: FitReport


@dataclass(slots=True)
class _Draft:
    """What has been found so far, pod set by pod set; `taken` is what earlier pod sets of the gang use of the quota."""

    picks: dict[str, tuple[Pick, ...]] = field(default_factory=dict)
    products: list[Rejection] = field(default_factory=list)
    quota: list[Rejection] = field(default_factory=list)
    held: list[Rejection] = field(default_factory=list)
    taken: dict[FlavorResource, int] = field(default_factory=dict)
    unknown: bool = False


def fit_of(place: Place) -> FitReport:
    """As `judge_fit`, which reads only the pods and the priority of a request: many that wait ask for the same, and
    of them one is judged."""
    key, fits = (place.request.pod_sets, place.request.priority, place.queue.name), place.index.fits
    known = fits.get(key)
    if not isinstance(known, _Fitted) or known.policy is not place.policy or known.holds != place.holds:
        if len(fits) >= SHAPES:
            del fits[next(iter(fits))]
        known = fits[key] = _Fitted(place.holds, place.policy, judge_fit(place))
    return known.report


def judge_fit(place: Place) -> FitReport:
    """Quota and nodes for the whole gang. Pure and total: what cannot be judged is Fit.UNKNOWN with its reason."""
    draft = _Draft()
    for unit in _units(place.request.pod_sets):
        _assign(place, unit, draft)
    complete = all(pod_set.name in draft.picks for pod_set in place.request.pod_sets)
    outlook = judge_nodes(place, _groups(place, draft), _main_flavors(place, draft))
    by_quota = _quota_fit(draft, complete)
    targets = _targets(place, draft) if by_quota is Fit.BY_PREEMPTION else None
    if by_quota is Fit.BY_PREEMPTION and targets is None:
        by_quota = Fit.WHEN_OTHERS_LEAVE
    fit = _worst(by_quota, outlook.fit)
    preempting = targets is not None and outlook.when_empty
    if preempting:
        fit = Fit.BY_PREEMPTION
    return FitReport(
        fit=fit,
        queue=place.queue.name,
        placements=_placements(place, draft, outlook.spread) if complete else (),
        flavors=_main_flavors(place, draft),
        products=tuple(draft.products),
        quota=tuple(draft.quota),
        nodes=() if preempting else outlook.nodes,
        held=tuple(draft.held) or (() if preempting else outlook.held),
        broken=outlook.broken,
        borrows=_borrows(place, draft, targets or ()),
        targets=targets or () if preempting else (),
    )


def _borrows(place: Place, draft: _Draft, targets: tuple[Target, ...]) -> bool:
    name, quota = place.queue.name, once_gone(place.room.quota, targets)
    return any(quota.used(name, fr) + amount > quota.nominal(name, fr) for fr, amount in draft.taken.items())


def _preemptor(place: Place) -> Preemptor:
    return Preemptor(place.room.quota, place.queue, place.request.priority, place.index.holders())


def _targets(place: Place, draft: _Draft) -> tuple[Target, ...] | None:
    """Whom Kueue would stop for the whole gang; None where each resource alone could be freed, but not all of them."""
    free = place.room.quota.available
    short = {fr: amount for fr, amount in sorted(draft.taken.items()) if amount > free(place.queue.name, fr)}
    found = _preemptor(place).targets(draft.taken, frozenset(short))
    if found is None:
        (flavor, resource), needed = next(iter(short.items()))
        _note(place, _short(place, flavor, resource, needed), draft)
    return found


def _short(place: Place, flavor: FlavorName, resource: str, needed: int) -> Pick:
    left = place.room.quota.available(place.queue.name, (flavor, resource))
    return Pick(flavor, QuotaState.SHORT, resource, needed, max(0, left))


_PREFERENCE = tuple(Fit)


def _worst(*fits: Fit) -> Fit:
    if Fit.NEVER in fits:
        return Fit.NEVER
    return max(fits, key=_PREFERENCE.index)


def _quota_fit(draft: _Draft, complete: bool) -> Fit:
    if not complete:
        return Fit.UNKNOWN if draft.unknown else Fit.NEVER
    worst = max((pick.state for picks in draft.picks.values() for pick in picks), default=QuotaState.FITS)
    return {
        QuotaState.FITS: Fit.NOW,
        QuotaState.RECLAIM: Fit.BY_PREEMPTION,
        QuotaState.PREEMPT: Fit.BY_PREEMPTION,
        QuotaState.HELD: Fit.WHEN_OTHERS_LEAVE,
        QuotaState.SHORT: Fit.WHEN_OTHERS_LEAVE,
        QuotaState.NEVER: Fit.NEVER,
    }[worst]


# --- flavors and quota -------------------------------------------------------------------------------------------


def _units(pod_sets: tuple[PodSet, ...]) -> Iterator[tuple[PodSet, ...]]:
    """What is given flavors in one go: a pod set, or those of one topology group, where the first of them stands."""
    done: set[str] = set()
    for pod_set in pod_sets:
        group = pod_set.topology.group if pod_set.topology is not None else ""
        if not group:
            yield (pod_set,)
        elif group not in done:
            done.add(group)
            yield tuple(p for p in pod_sets if p.topology is not None and p.topology.group == group)


def _assign(place: Place, unit: tuple[PodSet, ...], draft: _Draft) -> None:
    """Pick a flavor per resource group for one pod set, or for two that share theirs, or say why none can be."""
    wanted: dict[str, int] = {}
    for pod_set in unit:
        for resource, amount in pod_set.per_pod.items:
            if amount > 0:
                wanted[resource] = wanted.get(resource, 0) + amount * pod_set.count
    picks: dict[int, Pick] = {}
    for at, group in enumerate(place.queue.groups):
        covered = {resource: wanted.pop(resource) for resource in group.resources if resource in wanted}
        if PODS in group.resources:
            covered[PODS] = covered.get(PODS, sum(pod_set.count for pod_set in unit))
        if not covered:
            continue
        pick = _pick(place, unit, group, covered, draft)
        if pick is not None:
            picks[at] = pick
    for pod_set in unit:
        asked = {resource for resource, amount in pod_set.per_pod.items if amount > 0}
        uncovered = sorted((asked & wanted.keys()) - {PODS})
        needed = [at for at, group in enumerate(place.queue.groups) if (asked | {PODS}) & set(group.resources)]
        if not needed and len(unit) > 1:
            needed = list(picks)  # what asks for nothing of the queue takes the flavors of the one that it is with
        if uncovered:
            draft.products.append(_uncovered(place, pod_set, uncovered))
        elif not needed:
            draft.products.append(Rejection(Reason.QUEUE_INACTIVE, Resolver.OPERATOR, Detail(place.queue.name)))
        elif all(at in picks for at in needed):
            draft.picks[pod_set.name] = tuple(picks[at] for at in needed)


def _uncovered(place: Place, pod_set: PodSet, resources: list[str]) -> Rejection:
    """Kueue refuses a workload that asks for resources which no group of the queue covers; told once for all."""
    gpus = [resource for resource in resources if is_gpu(resource)]
    named = (gpus or resources)[0]
    detail = Detail(
        subject=pod_set.name,
        resource=named,
        needed=pod_set.per_pod.get(named) * pod_set.count,
        found=0,
        expected=tuple(resources),
        seen=tuple(sorted({r for group in place.queue.groups for r in group.resources})),
    )
    return Rejection(Reason.NO_SUCH_PRODUCT if gpus else Reason.NEVER_FITS, Resolver.OPERATOR, detail)


def _pick(
    place: Place, unit: tuple[PodSet, ...], group: ResourceGroup, covered: Mapping[str, int], draft: _Draft
) -> Pick | None:
    """The flavor that all of a unit take. `covered` is what they ask for together."""
    options: list[Pick] = []
    misses: list[Rejection] = []
    bare: list[FlavorName] = []
    for flavor in group.flavors:
        miss = next((found for p in unit if (found := _miss(place, p, flavor)) is not None), None)
        if miss is None and _has_no_gpus(place, flavor, covered):
            bare.append(flavor)  # before its topology, which would not help
            continue
        miss = miss or next((m for p in unit if (m := _wrong_topology(place, p, flavor, group)) is not None), None)
        if miss is not None:
            misses.append(miss)
            continue
        option = _quota_of(place, flavor, covered, draft.taken)
        options.append(option)
        if option.state is QuotaState.FITS:
            break
    if not options:
        told = _bare_rejection(unit, covered, bare) if bare and not misses else _nearest_miss(place, misses)
        draft.products.append(told)
        draft.unknown = draft.unknown or any(m.reason is Reason.UNKNOWN_PRODUCT for m in misses)
        return None
    best = min(options, key=lambda option: option.state)
    for resource, amount in covered.items():
        fr = (best.flavor, resource)
        draft.taken[fr] = draft.taken.get(fr, 0) + amount
    _note(place, best, draft)
    return best


def _has_no_gpus(place: Place, flavor: FlavorName, covered: Mapping[str, int]) -> bool:
    """Whether accelerators are asked of a flavor that has none for this queue, borrowed ones included.

    Kueue accepts its labels (only a flavor's own keys count) and then finds no quota: it is no option, and must not
    hide what is wrong with the flavors that have some.
    """
    quota, name = place.index.base.quota, place.queue.name
    return any(is_gpu(resource) and quota.potential(name, (flavor, resource)) == 0 for resource in covered)


def _bare_rejection(unit: tuple[PodSet, ...], covered: Mapping[str, int], bare: list[FlavorName]) -> Rejection:
    resource = next(resource for resource in sorted(covered) if is_gpu(resource))
    subject = next(pod_set.name for pod_set in unit if pod_set.per_pod.get(resource) > 0)
    detail = Detail(subject=subject, resource=resource, expected=(resource,), seen=tuple(bare))
    return Rejection(Reason.NO_SUCH_PRODUCT, Resolver.OPERATOR, detail)


def _miss(place: Place, pod_set: PodSet, flavor: FlavorName) -> Rejection | None:
    """Why a flavor is none for a pod set, or None when Kueue would take it."""
    view = place.index.view.flavors.get(flavor)
    if view is None:
        return Rejection(Reason.QUEUE_INACTIVE, Resolver.OPERATOR, Detail(subject=place.queue.name, flavor=flavor))
    plan = place.site.flavors.get(flavor) if place.site else None
    match = match_flavor(pod_set, dict(view.labels), plan.product if plan else None, place.policy.products)
    if match.verdict is not FlavorVerdict.MATCH:
        return _product_rejection(pod_set, flavor, match)
    given = (*pod_set.tolerations, *(toleration_of(entry) for entry in view.tolerations))
    taint = untolerated(given, view.taints)
    return taint_rejection(pod_set.name, flavor, taint) if taint else None


def _wrong_topology(place: Place, pod_set: PodSet, flavor: FlavorName, group: ResourceGroup) -> Rejection | None:
    """Kueue gives pods that ask for topology-aware scheduling only flavors with a topology that has their level, and
    all others only flavors without one, but where a queue has none of these: there it applies to everybody. A flavor
    that pods take for nothing but their number is let pass."""
    topology, wish = place.index.view.flavors[flavor].topology, pod_set.topology
    if wish is None:
        if topology is None or _topologies_only(place):
            return None
        return _no_level(pod_set, flavor, None, (f"only {topology.name}",))
    if topology is None:
        takes = any(pod_set.per_pod.get(resource) > 0 for resource in group.resources if resource != PODS)
        return _no_level(pod_set, flavor, wish, ()) if takes else None
    if not topology.suits(wish):
        return _no_level(pod_set, flavor, wish, topology.levels)
    return None


def _topologies_only(place: Place) -> bool:
    flavors = place.index.view.flavors
    named = (flavor for group in place.queue.groups for flavor in group.flavors)
    return all(flavor not in flavors or flavors[flavor].topology is not None for flavor in named)


def _no_level(pod_set: PodSet, flavor: FlavorName, wish: TopologyWish | None, seen: tuple[str, ...]) -> Rejection:
    """`expected` are the levels that are asked for; `seen` those that there are. `holder` says what is asked."""
    asked = "none" if wish is None else "required" if wish.required is not None else "any"
    levels = wish.levels if wish is not None else ()
    detail = Detail(subject=pod_set.name, flavor=flavor, expected=levels, seen=seen, holder=asked)
    return Rejection(Reason.TOPOLOGY_MISMATCH, Resolver.OPERATOR, detail)


_BY_VERDICT = {
    FlavorVerdict.OTHER: (Reason.NO_SUCH_PRODUCT, Resolver.OWNER),
    FlavorVerdict.OTHER_PRODUCT: (Reason.NO_SUCH_PRODUCT, Resolver.OWNER),
    FlavorVerdict.UNKNOWN_PRODUCT: (Reason.UNKNOWN_PRODUCT, Resolver.OPERATOR),
    FlavorVerdict.LABEL_MISMATCH: (Reason.LABEL_MISMATCH, Resolver.OPERATOR),
}


def _product_rejection(pod_set: PodSet, flavor: FlavorName, match: FlavorMatch) -> Rejection:
    reason, resolver = _BY_VERDICT[match.verdict]
    detail = Detail(
        subject=pod_set.name,
        resource=pod_set.per_pod.gpu_resource(),
        flavor=flavor,
        expected=match.wanted,
        seen=match.seen,
        holder=match.key,
    )
    return Rejection(reason, resolver, detail)


_NEARNESS = (
    Reason.TOPOLOGY_MISMATCH,
    Reason.TAINT,
    Reason.LABEL_MISMATCH,
    Reason.UNKNOWN_PRODUCT,
    Reason.NO_SUCH_PRODUCT,
    Reason.QUEUE_INACTIVE,
)


def _nearest_miss(place: Place, misses: Iterable[Rejection]) -> Rejection:
    """The miss nearest to a match; flavors that are simply others become one rejection with all values."""
    found = sorted(misses, key=lambda miss: _NEARNESS.index(miss.reason))
    if not found:
        return Rejection(Reason.QUEUE_INACTIVE, Resolver.OPERATOR, Detail(subject=place.queue.name))
    first = found[0]
    if first.reason is not Reason.NO_SUCH_PRODUCT:
        return first
    seen = tuple(dict.fromkeys(value for miss in found for value in miss.detail.seen))
    return replace(first, detail=replace(first.detail, flavor=None, seen=seen))


def _quota_of(
    place: Place, flavor: FlavorName, amounts: Mapping[str, int], taken: Mapping[tuple[FlavorName, str], int]
) -> Pick:
    """The worst state over the group's resources: all of them take the same flavor."""
    picks = [
        _quota_state(place, flavor, resource, amount + taken.get((flavor, resource), 0))
        for resource, amount in sorted(amounts.items())
    ]
    return max(picks, key=lambda pick: (pick.state, is_gpu(pick.resource)))


def _quota_state(place: Place, flavor: FlavorName, resource: str, needed: int) -> Pick:
    name, fr = place.queue.name, (flavor, resource)
    free = place.room.quota.available(name, fr)
    if needed <= free:
        return Pick(flavor, QuotaState.FITS, resource, needed, free)
    most = place.index.base.quota.potential(name, fr)
    if needed > most:
        return Pick(flavor, QuotaState.NEVER, resource, needed, most)
    if needed <= place.index.base.quota.available(name, fr):
        return Pick(flavor, QuotaState.HELD, resource, needed, max(0, free))
    return Pick(flavor, _preempting(place, fr, needed), resource, needed, max(0, free))


def _preempting(place: Place, fr: FlavorResource, needed: int) -> QuotaState:
    """Whether those whom Kueue would stop make room (FR-NOM-10), and whether giving back what is borrowed is enough:
    Kueue takes a flavor of which that is true before one where its own work must give way.

    An estimate on the safe side: only victims that we see, never what a hold promised.
    """
    if not (place.queue.preempts_lower_priority or place.queue.reclaims_within_cohort):
        return QuotaState.SHORT
    preemptor = _preemptor(place)
    found = preemptor.targets({fr: needed}, frozenset({fr})) if preemptor.may(fr, needed) else None
    if found is None:
        return QuotaState.SHORT
    return QuotaState.RECLAIM if all(target.reclaimed for target in found) else QuotaState.PREEMPT


def _note(place: Place, pick: Pick, draft: _Draft) -> None:
    detail = Detail(
        subject=place.queue.name, resource=pick.resource, flavor=pick.flavor, needed=pick.needed, found=pick.found
    )
    if pick.state is QuotaState.SHORT:
        draft.quota.append(Rejection(Reason.QUOTA, Resolver.WAIT, detail))
    elif pick.state is QuotaState.NEVER:
        draft.quota.append(Rejection(Reason.NEVER_FITS, Resolver.OPERATOR, detail))
    elif pick.state is QuotaState.HELD:
        draft.held.append(held_rejection(detail, pick.flavor, place.holds))


# --- what nodes are asked ----------------------------------------------------------------------------------------


def _main_flavors(place: Place, draft: _Draft) -> tuple[tuple[str, FlavorName], ...]:
    return tuple(
        (pod_set.name, _main(pod_set, draft.picks[pod_set.name], place.queue))
        for pod_set in place.request.pod_sets
        if pod_set.name in draft.picks
    )


def _main(pod_set: PodSet, picks: tuple[Pick, ...], queue: ClusterQueueView) -> FlavorName:
    resource = pod_set.per_pod.gpu_resource()
    for pick in picks:
        if any(pick.flavor in group.flavors and resource in group.resources for group in queue.groups):
            return pick.flavor
    return picks[0].flavor


def _groups(place: Place, draft: _Draft) -> tuple[PodGroup, ...]:
    groups: list[PodGroup] = []
    for pod_set in place.request.pod_sets:
        picks = draft.picks.get(pod_set.name)
        if picks:
            demand = demand_of(place.index.view, pod_set, tuple(pick.flavor for pick in picks))
            groups.append(pod_group(place.room.nodes, pod_set.name, pod_set.count, pod_set.per_pod, demand))
    return tuple(groups)


def _placements(place: Place, draft: _Draft, spread: Mapping[str, int]) -> tuple[Placement, ...]:
    main = dict(_main_flavors(place, draft))
    placements: list[Placement] = []
    for pod_set in place.request.pod_sets:
        flavors = dict.fromkeys((main[pod_set.name], *(pick.flavor for pick in draft.picks[pod_set.name])))
        for flavor in flavors:
            placements.append(Placement(pod_set.name, flavor, pod_set.count, spread.get(pod_set.name, 0)))
    return tuple(placements)
