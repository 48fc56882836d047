"""Which flavors a Workload takes in a ClusterQueue: Kueue's flavor assignment, as a pure function of quota and spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from connectors.embedded.manifests import FlavorResource, QueueSpec
from connectors.embedded.matching import flavor_matches, tolerates
from connectors.embedded.objects import Assignment
from connectors.embedded.quota import QuotaNode
from connectors.embedded.topology import flavor_refuses, units
from dispatcher.core.ids import FlavorName
from dispatcher.core.resources import PODS
from dispatcher.core.snapshot import FlavorView, ResourceGroup
from dispatcher.core.workload import PodSet, Toleration


class Mode(IntEnum):
    """How well an assignment fits, best last."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one Workload; `assignment` is None where nothing can ever fit. `message` says what is short."""

    mode: Mode
    assignment: Assignment | None
    message: str = ""


def assign(
    pod_sets: tuple[PodSet, ...],
    queue: QueueSpec,
    node: QuotaNode,
    flavors: Mapping[FlavorName, FlavorView],
    may_preempt: bool,
) -> Verdict:
    """Give every pod set a flavor per resource group, in order of the pod sets, each seeing what those before took. Pod
    sets of one topology group are given theirs together, for what they ask for in sum.

    All resources of a group take the same flavor (kueue-contract section 12). The first flavor that fits wins; where
    none does, the first that preemption could make fit.
    """
    taken: dict[FlavorResource, int] = {}
    chosen: dict[int, tuple[tuple[str, FlavorName], ...]] = {}
    mode, messages = Mode.FIT, []
    for unit in units(pod_sets):
        of_each = {id(pod_set): _totals(pod_set, queue) for pod_set in unit}
        totals: dict[str, int] = {}
        for amounts in of_each.values():
            for name, value in amounts.items():
                totals[name] = totals.get(name, 0) + value
        picked: dict[str, FlavorName] = {}
        for group in queue.view.groups:
            wanted = {name: totals.pop(name) for name in group.resources if name in totals}
            if not wanted:
                continue
            flavor, group_mode, why = _pick(unit, group, wanted, _Offer(queue, node, flavors, taken, may_preempt))
            mode = min(mode, group_mode)
            if why:
                messages.append(why)
            if flavor is None:
                return Verdict(Mode.NO_FIT, None, _message(unit[0].name, messages))
            picked.update(dict.fromkeys(wanted, flavor))
            for resource, value in wanted.items():
                taken[flavor, resource] = taken.get((flavor, resource), 0) + value
        uncovered = sorted(name for name, value in totals.items() if value > 0)
        if uncovered:
            text = f"resource {uncovered[0]} unavailable in ClusterQueue"
            return Verdict(Mode.NO_FIT, None, _message(unit[0].name, [text]))
        for each, amounts in of_each.items():
            chosen[each] = tuple(sorted((key, value) for key, value in picked.items() if key in amounts))
    usage = tuple(sorted(taken.items()))
    borrows = any(node.borrows_with(key, value) for key, value in usage)
    message = "" if mode is Mode.FIT else _message(pod_sets[0].name, messages)
    return Verdict(mode, Assignment(tuple(chosen[id(pod_set)] for pod_set in pod_sets), usage, borrows), message)


@dataclass(frozen=True, slots=True)
class _Offer:
    queue: QueueSpec
    node: QuotaNode
    flavors: Mapping[FlavorName, FlavorView]
    taken: Mapping[FlavorResource, int]
    may_preempt: bool


def _pick(
    unit: Sequence[PodSet], group: ResourceGroup, wanted: Mapping[str, int], offer: _Offer
) -> tuple[FlavorName | None, Mode, str]:
    fallback: FlavorName | None = None
    reasons: list[str] = []
    for name in group.flavors:
        flavor = offer.flavors.get(name)
        if flavor is None:
            reasons.append(f"flavor {name} not found")
            continue
        refused = next((text for pod_set in unit if (text := _refuses(flavor, pod_set, wanted, offer))), "")
        if refused:
            reasons.append(refused)
            continue
        mode, why = _fits(name, wanted, offer)
        if mode is Mode.FIT:
            return name, Mode.FIT, ""
        reasons.extend(why)
        if mode is Mode.PREEMPT and fallback is None:
            fallback = name
    mode = Mode.NO_FIT if fallback is None else Mode.PREEMPT
    return fallback, mode, ", ".join(reasons)


def _refuses(flavor: FlavorView, pod_set: PodSet, wanted: Mapping[str, int], offer: _Offer) -> str:
    """Why a flavor is none for a pod set, whatever its quota, or nothing."""
    if not tolerates((*pod_set.tolerations, *flavor_tolerations(flavor)), flavor.taints):
        return f"untolerated taint in flavor {flavor.name}"
    if flavor.topology is not None or pod_set.topology is not None:
        asked = {name for name in wanted if name == PODS or pod_set.per_pod.get(name) > 0}
        refused = flavor_refuses(flavor, pod_set, asked, _only_topologies(offer))
        if refused:
            return refused
    if not flavor_matches(dict(flavor.labels), pod_set.selector, pod_set.terms):
        return f"flavor {flavor.name} doesn't match node affinity"
    return ""


def _only_topologies(offer: _Offer) -> bool:
    named = [offer.flavors.get(name) for group in offer.queue.view.groups for name in group.flavors]
    return all(flavor is not None and flavor.topology is not None for flavor in named)


def flavor_tolerations(flavor: FlavorView) -> tuple[Toleration, ...]:
    """What Kueue adds to the pods that take this flavor."""
    return tuple(Toleration(*entry) for entry in flavor.tolerations)


def _fits(flavor: FlavorName, wanted: Mapping[str, int], offer: _Offer) -> tuple[Mode, list[str]]:
    worst, reasons = Mode.FIT, []
    for resource, value in sorted(wanted.items()):
        key = (flavor, resource)
        need = value + offer.taken.get(key, 0)
        if key not in offer.queue.quotas:
            return Mode.NO_FIT, [f"resource {resource} has no quota in flavor {flavor}"]
        free = offer.node.available(key)
        if need <= free:
            continue
        most = offer.node.most(key)
        if need > most:
            text = f"insufficient quota for {resource} in flavor {flavor}, request > maximum capacity ({need} > {most})"
            return Mode.NO_FIT, [text]
        reasons.append(
            f"insufficient unused quota for {resource} in flavor {flavor}, {need - max(0, free)} more needed"
        )
        may_free = offer.queue.view.preempts_while_borrowing or offer.node.may_be_freed_for(key, need)
        worst = min(worst, Mode.PREEMPT if offer.may_preempt and may_free else Mode.NO_FIT)
    return worst, reasons


def _totals(pod_set: PodSet, queue: QueueSpec) -> dict[str, int]:
    totals = dict(pod_set.per_pod.times(pod_set.count).items)
    if any(PODS in group.resources for group in queue.view.groups):
        totals[PODS] = pod_set.count
    return totals


def _message(pod_set: str, reasons: list[str]) -> str:
    return f"couldn't assign flavors to pod set {pod_set}: {', '.join(reasons)}"
