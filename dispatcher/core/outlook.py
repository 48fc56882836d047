"""Whether the nodes have a place for every pod of a gang: now, when others leave, when nodes come back, or never.

The question is asked of ever kinder worlds, and the first in which the gang has a place names the reason that it has
none now (FR-NOM-06 keeps "absent" and "away for a while" apart):

1. as it is, promised capacity deducted; 2. as if nothing were promised (held); 3. as if these nodes were empty (others
must leave); 4. as if taints were tolerated (taint); 5. as if absent nodes were back; 6. as if all declared nodes were
there. A gang that has no place in any of them never fits. Pods that must lie together have a place where one domain of
the topology has room for all of them (FR-SCO-02); where it is only this that they lack, they are told so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dispatcher.core.decision import Detail, DomainDetail, Fit, Reason, Rejection, Resolver
from dispatcher.core.ids import FlavorName
from dispatcher.core.nodes import Demand, NodeTable, free_total, largest_free, node_table
from dispatcher.core.nodeset import NO_NODES, Nodes, first, first_of, members
from dispatcher.core.packing import (
    Packing,
    PodGroup,
    beside,
    largest_domain,
    leader_first,
    pack,
    pod_group,
    undivided,
)
from dispatcher.core.place import Broken, Place, held_rejection, taint_rejection
from dispatcher.core.resources import NOTHING, PODS, is_gpu
from dispatcher.core.selectors import PRODUCT_KEYS, untolerated
from dispatcher.core.snapshot import NodeView
from dispatcher.core.workload import PodSet

Flavors = tuple[tuple[str, FlavorName], ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """The node side of a fit. `spread` is nodes per pod set; `when_empty`: a preemption could help."""

    fit: Fit
    nodes: tuple[Rejection, ...] = ()
    held: tuple[Rejection, ...] = ()
    spread: Mapping[str, int] = field(default_factory=dict)
    broken: tuple[Broken, ...] = ()
    when_empty: bool = False


def judge_nodes(place: Place, groups: tuple[PodGroup, ...], flavors: Flavors) -> Outlook:
    """Place the gang on the nodes as they are, or find out what would have to change."""
    packing = pack(place.room.nodes, groups)
    if not packing.failed:
        broken = _broken(place.room.nodes, packing, groups, dict(flavors))
        return Outlook(Fit.NOW, spread=_spread(packing), broken=broken, when_empty=True)
    lacking = _Lacking(place, place.room.nodes.with_free(packing.free), groups, dict(flavors))
    failed = tuple(group for group in groups if group.name in packing.failed)
    base = place.index.base.nodes
    if place.holds and not pack(base, groups).failed:
        held = tuple(held_rejection(lacking.detail(g), lacking.flavors[g.name], place.holds) for g in failed)
        return Outlook(Fit.WHEN_OTHERS_LEAVE, held=held, spread=_spread(pack(base, groups)), when_empty=True)
    empty = base.emptied()
    alone = pack(empty, groups)
    if not alone.failed:
        nodes = tuple(dict.fromkeys(told for g in failed for told in lacking.in_use(g)))
        return Outlook(Fit.WHEN_OTHERS_LEAVE, nodes, spread=_spread(alone), when_empty=True)
    return _beyond(lacking, empty, tuple(g for g in groups if g.name in alone.failed))


def _beyond(lacking: _Lacking, empty: NodeTable, failed: tuple[PodGroup, ...]) -> Outlook:
    """The gang has no place even on empty nodes: taints, absent nodes, wrong labels, undeclared or too small ones."""
    groups = lacking.groups
    if not pack(empty, _widened(groups, any_taint=True)).failed:
        return Outlook(Fit.NEVER, tuple(lacking.taint(g) for g in failed))
    if not pack(empty, _widened(groups, absent=True)).failed:
        return Outlook(Fit.WHEN_OTHERS_LEAVE, tuple(lacking.unavailable(g) for g in failed))
    apart = tuple(g for g in failed if g.demand.is_divided and lacking.all_seen(g))
    if apart and not pack(empty, _widened(tuple(map(undivided, groups)), absent=True)).failed:
        never = (lacking.apart(g, empty, Reason.NEVER_FITS, Resolver.OPERATOR) for g in apart)
        return Outlook(Fit.NEVER, tuple(dict.fromkeys(never)))
    mislabelled = tuple(r for g in failed if (r := lacking.mislabelled(g)) is not None)
    if mislabelled:
        return Outlook(Fit.NEVER, mislabelled)
    declared, known = _declared(lacking)
    if not pack(declared, _redrawn(lacking, declared)).failed:
        return Outlook(Fit.WHEN_OTHERS_LEAVE, tuple(lacking.unavailable(g) for g in failed))
    if not all(lacking.flavors[g.name] in known for g in failed):
        unseen = tuple(lacking.unseen(g) for g in failed if lacking.flavors[g.name] not in known)
        return Outlook(Fit.UNKNOWN, unseen)
    return Outlook(Fit.NEVER, tuple(lacking.never(g, empty) for g in failed))


def _widened(groups: tuple[PodGroup, ...], *, any_taint: bool = False, absent: bool = False) -> tuple[PodGroup, ...]:
    return tuple(replace(g, demand=replace(g.demand, any_taint=any_taint, absent=absent)) for g in groups)


def _spread(packing: Packing) -> dict[str, int]:
    spread: dict[str, int] = {}
    for spot in packing.placed:
        spread[spot.group] = spread.get(spot.group, 0) + spot.nodes.bit_count()
    return spread


def _broken(
    table: NodeTable, packing: Packing, groups: tuple[PodGroup, ...], flavors: Mapping[str, FlavorName]
) -> tuple[Broken, ...]:
    """GPUs left over on nodes that were whole and now are not, per flavor and resource (design section 5, best fit).

    A node is counted once, for the first group with GPUs on it, with what is left when all groups lie.
    """
    by_name = {group.name: group for group in groups}
    lost: dict[tuple[FlavorName, str], int] = {}
    counted = NO_NODES
    for spot in packing.placed:
        if not by_name[spot.group].gpus:
            continue
        fresh = spot.nodes & ~counted
        counted |= fresh
        for at, left, count in _left_over(table, packing, fresh):
            key = (flavors[spot.group], table.frame.resources[at])
            lost[key] = lost.get(key, 0) + left * count
    return tuple(Broken(flavor, resource, amount) for (flavor, resource), amount in sorted(lost.items()))


def _left_over(table: NodeTable, packing: Packing, among: Nodes) -> Iterator[tuple[int, int, int]]:
    """(place of a resource, GPUs left on a node, number of such nodes) of nodes that were whole and are broken."""
    for size, of_size in table.frame.sizes.items():
        if not any(size[at] for at in table.frame.gpu_places) or not of_size & among:
            continue
        for before, had in table.free.items():
            start = of_size & among & had
            if not start:
                continue
            for after, have in packing.free.items():
                count = (start & have).bit_count()
                for at in table.frame.gpu_places if count else ():
                    if before[at] == size[at] and 0 < after[at] < size[at]:
                        yield at, after[at], count


# --- the world as declared ---------------------------------------------------------------------------------------


def _declared(lacking: _Lacking) -> tuple[NodeTable, frozenset[FlavorName]]:
    """All nodes that the blueprint declares or that were seen, empty and present, and the flavors known by either."""
    place = lacking.place
    nodes: list[NodeView] = []
    known: set[FlavorName] = set()
    for flavor in sorted(set(lacking.flavors.values())):
        view = place.index.view.flavors.get(flavor)
        labels = view.labels if view else ()
        plan = place.site.flavors.get(flavor) if place.site else None
        if plan is not None and plan.nodes is not None:
            known.add(flavor)
            shape = plan.nodes
            nodes += [
                NodeView(f"{flavor}/{i}", labels, shape.allocatable, taints=shape.taints) for i in range(shape.count)
            ]
            continue
        seen = [node for node in place.index.view.nodes if set(labels) <= set(node.labels)]
        if seen:
            known.add(flavor)
        nodes += [NodeView(node.name, node.labels, node.allocatable, NOTHING, node.taints) for node in seen]
    distinct = {node.name: node for node in nodes}
    return node_table(distinct.values()), frozenset(known)


def _redrawn(lacking: _Lacking, table: NodeTable) -> tuple[PodGroup, ...]:
    """The gang's needs on another table. Declared nodes have the flavor's labels only, so own selectors are let go, and
    so are domains: in which rack a node will stand nobody declares."""
    redrawn: list[PodGroup] = []
    for group in lacking.groups:
        demand = Demand(group.demand.flavor_labels, tolerations=group.demand.tolerations)
        pod_set = lacking.pod_set(group)
        redrawn.append(pod_group(table, group.name, group.count, pod_set.per_pod, demand))
    return tuple(redrawn)


# --- saying what is lacking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Makes the typed details. `table` is the world after the pod sets that did find a place were laid down."""

    place: Place
    table: NodeTable
    groups: tuple[PodGroup, ...]
    flavors: Mapping[str, FlavorName]

    def pod_set(self, group: PodGroup) -> PodSet:
        return next(p for p in self.place.request.pod_sets if p.name == group.name)

    def detail(self, group: PodGroup) -> Detail:
        """Needed and free of the resource that runs out first, and the most that one node has of it (FR-SCO-02)."""
        return self._detail(group, self.table, self.table.eligible(group.demand))

    def in_use(self, group: PodGroup) -> tuple[Rejection, ...]:
        """Others use what it needs; or all that it needs is free, and in no one domain."""
        in_sum: tuple[str, ...] = (group.name,)
        if group.demand.is_divided:
            in_sum = pack(self.table, map(undivided, beside(group, self.groups))).failed
            if not in_sum:
                return (self.apart(group, self.table, Reason.TOPOLOGY, Resolver.WAIT),)
        return (Rejection(Reason.NODES, Resolver.WAIT, self.detail(group)),) if group.name in in_sum else ()

    def apart(self, group: PodGroup, table: NodeTable, reason: Reason, resolver: Resolver) -> Rejection:
        """No one domain. Of two that must lie together the larger is told for both."""
        unit = beside(group, self.groups)
        if len(unit) == 2:
            _, group = leader_first(unit)
        demand = group.demand
        room = largest_domain(table, unit)
        found = DomainDetail(
            level=demand.domain.keys[-1] if demand.domain is not None else "",
            pods=sum(each.count for each in unit),
            fits=room.pods if room else 0,
            largest=room.name if room else (),
            slice_level=demand.slices[0].domain.keys[-1] if demand.slices else "",
            slice_size=demand.slices[0].size if demand.slices else 0,
            beside=next((each.name for each in unit if each is not group), ""),
        )
        return Rejection(reason, resolver, replace(self._detail(group, table, table.eligible(demand)), domain=found))

    def all_seen(self, group: PodGroup) -> bool:
        """Whether as many nodes of its flavor are seen as the blueprint declares: none is to come that could stand in
        the same domain as others."""
        plan = self.place.site.flavors.get(self.flavors[group.name]) if self.place.site else None
        if plan is None or plan.nodes is None:
            return True
        return self.table.flavored(group.demand.flavor_labels).bit_count() >= plan.nodes.count

    def taint(self, group: PodGroup) -> Rejection:
        flavor, table = self.flavors[group.name], self.table
        closed = table.eligible(replace(group.demand, any_taint=True)) & ~table.eligible(group.demand)
        if closed:
            taint = untolerated(group.demand.tolerations, table.frame.marks.taints_of(first(closed)))
            if taint is not None:
                return taint_rejection(group.name, flavor, taint)
        return Rejection(Reason.TAINT, Resolver.OWNER, Detail(subject=group.name, flavor=flavor))

    def unavailable(self, group: PodGroup) -> Rejection:
        """Seen or declared before, now away: cordoned, NotReady, deleting, scaled to zero."""
        away = self.table.selected(group.demand) & ~self.table.present
        absent = tuple(self.table.frame.marks.names[at] for at in members(first_of(away, 8)))
        detail = self._detail(group, self.table, self.table.eligible(group.demand))
        return Rejection(Reason.NODES_UNAVAILABLE, Resolver.WAIT, replace(detail, seen=absent))

    def unseen(self, group: PodGroup) -> Rejection:
        """The flavor has quota, but no node of it was ever seen and the blueprint declares none: nobody can say."""
        return Rejection(Reason.NODES_UNAVAILABLE, Resolver.OPERATOR, self.detail(group))

    def never(self, group: PodGroup, empty: NodeTable) -> Rejection:
        nodes = empty.eligible(replace(group.demand, any_taint=True, absent=True))
        return Rejection(Reason.NEVER_FITS, Resolver.OPERATOR, self._detail(group, empty, nodes))

    def mislabelled(self, group: PodGroup) -> Rejection | None:
        """Nodes of the flavor exist, but none has the labels that the pods select by."""
        flavored, marks = self.table.flavored(group.demand.flavor_labels), self.table.frame.marks
        if not flavored or self.table.selected(undivided(group).demand):
            return None
        for requirement in group.demand.selector:
            if not marks.holding(requirement) & flavored:
                seen = marks.values(requirement.key, flavored)
                return self._mislabelled(group, requirement.key, requirement.values, seen)
        keys = tuple(dict.fromkeys(r.key for term in group.demand.terms for r in term))
        return self._mislabelled(group, ", ".join(keys), (), ())

    def _mislabelled(self, group: PodGroup, key: str, wanted: tuple[str, ...], seen: tuple[str, ...]) -> Rejection:
        reason = Reason.NO_SUCH_PRODUCT if key in PRODUCT_KEYS else Reason.NEVER_FITS
        detail = Detail(group.name, None, self.flavors[group.name], expected=wanted, seen=seen, holder=key)
        return Rejection(reason, Resolver.OWNER, detail)

    def _detail(self, group: PodGroup, table: NodeTable, nodes: Nodes) -> Detail:
        per_pod = self.pod_set(group).per_pod
        if group.missing is not None:
            needed = per_pod.get(group.missing) * group.count
            return Detail(group.name, group.missing, self.flavors[group.name], needed, 0, None)
        resource = _scarcest(table, group, nodes)
        each = max(1, per_pod.get(resource)) if resource == PODS else per_pod.get(resource)
        return Detail(
            subject=group.name,
            resource=resource,
            flavor=self.flavors[group.name],
            needed=each * group.count,
            found=free_total(table, nodes, resource),
            largest_node_free=largest_free(table, nodes, resource),
        )


def _scarcest(table: NodeTable, group: PodGroup, nodes: Nodes) -> str:
    """The resource by which alone the fewest pods have a place; accelerators win a tie."""
    resources = table.frame.resources
    rooms = [
        (sum(max(0, free) // amount * count for free, count in table.amounts(nodes, resources[at])), at)
        for at, amount in group.need or ()
    ]
    return resources[min(rooms, key=lambda entry: (entry[0], not is_gpu(resources[entry[1]]), entry[1]))[1]]
