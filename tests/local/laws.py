"""What must hold at each change of a fleet's history (observer.py), whatever the daemon went through meanwhile.

Nothing here uses the daemon's code: capacity is read from nodes and ClusterQueues, and counted by hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.fleet import LocalFleet
from tests.local.observer import GPU, HUB, KUEUE, PRODUCT, Change, JobSeen, Key, PodSeen, WorkloadSeen

Place = tuple[str, str]
"""(cluster, GPU product)."""


# --- one copy, one run -------------------------------------------------------------------------------------------


def doubled(changes: Sequence[Change]) -> list[str]:
    """Copies or Jobs of one piece of work on two clusters at the same instant.

    Copies may stand on all clusters of one nomination, when patience with the first has ended; Jobs may not.
    """
    alive: dict[tuple[str, Key], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    invited: dict[Key, frozenset[str]] = {}
    found: dict[str, None] = {}
    for change in changes:
        if change.cluster == HUB:
            if isinstance(change.seen, WorkloadSeen) and change.seen.nominated:
                invited[change.key] = frozenset(change.seen.nominated)
            continue
        if change.kind == "pods":
            continue
        clusters = alive[change.kind, change.key]
        if change.seen is None:
            clusters[change.cluster].discard(change.uid)
        else:
            clusters[change.cluster].add(change.uid)
        where = sorted(cluster for cluster, uids in clusters.items() if uids)
        together = change.kind == "workloads" and set(where) <= invited.get(change.key, frozenset())
        if len(where) > 1 and not together:
            found[f"{change.kind[:-1]} {'/'.join(change.key)} on {' and '.join(where)}"] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class Runs:
    """How often each Job of a namespace/name began on workers, and how many pods it ever had there."""

    copies: Mapping[Key, int]
    jobs: Mapping[Key, int]
    pods: Mapping[Key, int]


def runs(changes: Sequence[Change]) -> Runs:
    """Counted by uid over the whole history. Copies are counted under the name of their hub Workload's job."""
    owner = {c.key: c.seen.job for c in changes if c.cluster == HUB and isinstance(c.seen, WorkloadSeen)}
    copies: dict[Key, set[str]] = defaultdict(set)
    jobs: dict[Key, set[str]] = defaultdict(set)
    pods: dict[Key, set[str]] = defaultdict(set)
    for change in changes:
        if change.cluster == HUB:
            continue
        namespace, name = change.key
        if isinstance(change.seen, WorkloadSeen):
            copies[namespace, owner.get(change.key, name)].add(change.uid)
        elif isinstance(change.seen, JobSeen):
            jobs[change.key].add(change.uid)
        elif isinstance(change.seen, PodSeen) and change.seen.job:
            pods[namespace, change.seen.job].add(change.uid)
    return Runs(*({key: len(uids) for key, uids in found.items()} for found in (copies, jobs, pods)))


# --- nominations -------------------------------------------------------------------------------------------------


def changed_in_flight(changes: Sequence[Change]) -> list[str]:
    """Nominations that were altered other than by adding a cluster, within one attempt (kueue-contract section 5)."""
    before: dict[str, WorkloadSeen] = {}
    found: list[str] = []
    for change in changes:
        if change.cluster != HUB or not isinstance(change.seen, WorkloadSeen):
            continue
        old, new = before.get(change.uid), change.seen
        before[change.uid] = new
        if old is None:
            continue
        name = f"{'/'.join(change.key)} at {change.revision}"
        ended = bool(new.cluster) or not new.reserved or new.evicted or new.finished or not new.active
        added = new.nominated[: len(old.nominated)] == old.nominated
        if not added and not (new.nominated == () and ended):
            found.append(f"{name}: {list(old.nominated)} became {list(new.nominated)}")
        if old.cluster and new.cluster and old.cluster != new.cluster:
            found.append(f"{name}: moved from {old.cluster} to {new.cluster} without an eviction")
        if new.cluster and not old.cluster and new.cluster not in old.nominated:
            found.append(f"{name}: placed on {new.cluster}, nominated to {list(old.nominated)}")
    return found


def nominated_once(changes: Sequence[Change]) -> dict[Key, tuple[str, ...]]:
    """The longest nomination that each hub Workload ever had, by namespace and job."""
    found: dict[Key, tuple[str, ...]] = {}
    for change in changes:
        if change.cluster == HUB and isinstance(change.seen, WorkloadSeen):
            key = (change.key[0], change.seen.job)
            if len(change.seen.nominated) > len(found.get(key, ())):
                found[key] = change.seen.nominated
    return found


# --- fit and look-ahead ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Room:
    """What a fleet's workers offer: GPUs of nodes, and quota, by cluster and product; limits of single queues."""

    nodes: Mapping[Place, int]
    quota: Mapping[Place, int]
    queues: Mapping[tuple[str, str, str], int]
    """By cluster, namespace and product: nominal quota and borrowing limit; absent = the cohort's is the limit."""

    def at(self, place: Place) -> int:
        return min(self.nodes.get(place, 0), self.quota.get(place, 0))


OFFERED = {
    "nodes": "/api/v1/nodes",
    "resourceflavors": f"{KUEUE}/resourceflavors",
    "clusterqueues": f"{KUEUE}/clusterqueues",
    "localqueues": f"{KUEUE}/localqueues",
}
Listed = Mapping[str, Sequence[Mapping[str, Any]]]
"""Objects by the plural of their kind, as an apiserver lists them."""


def room(fleet: LocalFleet) -> Room:
    """Read from nodes, ResourceFlavors, ClusterQueues and LocalQueues of every worker."""
    listed: dict[str, Listed] = {}
    for cluster, endpoint in sorted(fleet.workers.items()):
        with endpoint.api() as api:
            listed[cluster] = {kind: api.request("GET", path)["items"] for kind, path in OFFERED.items()}
    return room_of(listed)


def room_of(workers: Mapping[str, Listed]) -> Room:
    nodes: dict[Place, int] = defaultdict(int)
    quota: dict[Place, int] = defaultdict(int)
    queues: dict[tuple[str, str, str], int] = {}
    for cluster, listed in workers.items():
        for node in listed["nodes"]:
            if not node.get("spec", {}).get("unschedulable"):
                product = node["metadata"].get("labels", {}).get(PRODUCT, "")
                nodes[cluster, product] += int(node["status"]["allocatable"].get(GPU, 0))
        products = {
            f["metadata"]["name"]: f["spec"].get("nodeLabels", {}).get(PRODUCT) for f in listed["resourceflavors"]
        }
        namespaces = {q["spec"]["clusterQueue"]: q["metadata"]["namespace"] for q in listed["localqueues"]}
        for queue in listed["clusterqueues"]:
            namespace = namespaces.get(queue["metadata"]["name"], "")
            for product, nominal, borrow in _gpu_quota(queue, products):
                quota[cluster, product] += nominal
                if borrow is not None:
                    queues[cluster, namespace, product] = nominal + borrow
    return Room(dict(nodes), dict(quota), queues)


def _gpu_quota(queue: Mapping[str, Any], products: Mapping[str, str | None]) -> list[tuple[str, int, int | None]]:
    """(product, nominal, borrowing limit) of a ClusterQueue's flavors."""
    found = []
    for group in queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            product = products.get(flavor["name"])
            for line in flavor["resources"]:
                if line["name"] == GPU and product is not None:
                    limit = line.get("borrowingLimit")
                    found.append((product, int(line["nominalQuota"]), int(limit) if limit is not None else None))
    return found


def look_ahead(blueprint: Path) -> dict[str, int]:
    """Workloads of each class that may be nominated to a cluster ahead of its capacity, as the files say."""
    plan = yaml.safe_load((blueprint / "queues.yaml").read_text())
    return {name: int(rules.get("look_ahead", 0)) for name, rules in plan["classes"].items()}


@dataclass(slots=True)
class _Promised:
    """Who stands nominated to, or runs on, which cluster, as a history goes on."""

    hub: dict[str, tuple[Key, WorkloadSeen]] = field(default_factory=dict)
    copies: dict[tuple[str, Key], WorkloadSeen] = field(default_factory=dict)

    def take(self, change: Change) -> None:
        if change.kind != "workloads":
            return
        seen = change.seen if isinstance(change.seen, WorkloadSeen) else None
        if change.cluster == HUB:
            if seen is None:
                self.hub.pop(change.uid, None)
            else:
                self.hub[change.uid] = (change.key, seen)
        elif seen is None:
            self.copies.pop((change.cluster, change.key), None)
        else:
            self.copies[change.cluster, change.key] = seen

    def on(self, cluster: str) -> dict[Key, WorkloadSeen]:
        """Everything that `cluster` has been given and has not finished, and what it holds on its own."""
        mine = {key: w for key, w in self.hub.values() if self._given(key, w, cluster)}
        own = {key: w for (at, key), w in self.copies.items() if at == cluster and w.reserved and not w.finished}
        return {**own, **mine}

    def _given(self, key: Key, workload: WorkloadSeen, cluster: str) -> bool:
        if workload.finished or (cluster not in workload.nominated and cluster != workload.cluster):
            return False
        copy = self.copies.get((cluster, key))
        return copy is None or not copy.finished


@dataclass(frozen=True, slots=True)
class Filling:
    """What a history says of the bound: every breach, and how full each place ever was."""

    breaches: list[str]
    fullest: Mapping[Place, int]
    judged: int
    """How many nominations were judged."""


def beyond_fit(
    changes: Sequence[Change],
    offer: Room,
    ahead: Mapping[str, int],
    classes: Mapping[str, str],
    blind: Sequence[tuple[int, int]] = (),
) -> Filling:
    """Judge the sum of what each cluster was ever given, at the instant of each nomination.

    A nomination may exceed what fits by its class's look-ahead only: `ahead` counts Workloads by class, `classes` tells
    the class of a job. GPUs are summed by product; a cluster's queues lend each other everything unless they say not.
    In the spans of `blind` (Observer.gaps) nothing is judged: what went meanwhile is known by its end only.
    """
    promised, fullest, judged = _Promised(), dict[Place, int](), 0
    breaches: list[str] = []
    for change in changes:
        before = promised.hub.get(change.uid)
        promised.take(change)
        if change.cluster != HUB or not isinstance(change.seen, WorkloadSeen):
            continue
        old = before[1].nominated if before is not None else ()
        for cluster in change.seen.nominated:
            if cluster in old or any(start <= change.revision <= end for start, end in blind):
                continue
            judged += 1
            place, given = (cluster, change.seen.product), promised.on(cluster)
            same = {key: w for key, w in given.items() if w.product == change.seen.product}
            used = sum(w.gpus for w in same.values())
            fullest[place] = max(fullest.get(place, 0), used)
            spare = _spare(same, ahead, classes)
            name = f"{'/'.join(change.key)} to {cluster} at {change.revision}"
            if used > offer.at(place) + spare:
                whose = ", ".join(f"{'/'.join(key)} {w.gpus}" for key, w in sorted(same.items()))
                breaches.append(f"{name}: {used} of {offer.at(place)} (+{spare}) {change.seen.product}: {whose}")
            own = offer.queues.get((cluster, change.key[0], change.seen.product))
            mine = {key: w for key, w in same.items() if key[0] == change.key[0]}
            if own is not None and sum(w.gpus for w in mine.values()) > own + _spare(mine, ahead, classes):
                breaches.append(f"{name}: its queue's limit is {own}")
    return Filling(breaches, fullest, judged)


def _spare(given: Mapping[Key, WorkloadSeen], ahead: Mapping[str, int], classes: Mapping[str, str]) -> int:
    """GPUs that may be promised beyond the fit: the largest of each class, as many as may look ahead."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for workload in given.values():
        sizes[classes.get(workload.job, "")].append(workload.gpus)
    return sum(sum(sorted(found, reverse=True)[: ahead.get(name, 0)]) for name, found in sizes.items())
