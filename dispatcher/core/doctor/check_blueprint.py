"""The blueprint against the fleet: names on one side only, and nodes that are not what is declared."""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.core.doctor.check_nodes import matches
from dispatcher.core.doctor.facts import HUB, BlueprintFacts, ClusterFacts, FleetFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.doctor.reach import dispatched_queues, seen_workers
from dispatcher.core.policy import ClusterPolicy, FlavorPolicy, Policy
from dispatcher.core.resources import is_gpu


def check_blueprint(facts: FleetFacts) -> Iterator[Finding]:
    blueprint = facts.blueprint
    if blueprint is None:
        return
    for lint in blueprint.lint:
        code = Code.BLUEPRINT_ERROR if lint.error else Code.BLUEPRINT_WARNING
        place = f"{lint.file}:{lint.line}:{lint.column}" if lint.file else blueprint.folder
        yield found(code, Where(place=place), lint.rule, lint.fix)
    if not blueprint.signed:
        where = Where(place="residency/manifest.json")
        yield found(Code.RULES_UNSIGNED, where, "no manifest with a signature lies beside the files")
    if blueprint.policy is None or not facts.hub.cluster.reachable:
        return
    yield from _clusters(facts, blueprint.policy)
    yield from _queues_on_hub(facts, blueprint)
    for name, worker in seen_workers(facts).items():
        cluster = next((c for key, c in blueprint.policy.clusters.items() if str(key) == name), None)
        if cluster is not None:
            yield from _queues_on_worker(worker.cluster, blueprint)
            yield from _flavors(worker.cluster, cluster, blueprint)


def _clusters(facts: FleetFacts, policy: Policy) -> Iterator[Finding]:
    if facts.hub.clusters is None:
        return
    planned = {str(name): cluster for name, cluster in policy.clusters.items()}
    for name in sorted(set(facts.hub.clusters) - set(planned)):
        where = Where(HUB, "MultiKueueCluster", name)
        yield found(Code.CLUSTER_NOT_IN_BLUEPRINT, where, f"fleet.yaml has no cluster {name}")
    for name in sorted(set(planned) - set(facts.hub.clusters)):
        seen = f"the hub has no MultiKueueCluster {name} ({planned[name].line or 'fleet.yaml'})"
        yield found(Code.CLUSTER_NOT_ON_HUB, Where(HUB, "MultiKueueCluster", name), seen)


def _queues_on_hub(facts: FleetFacts, blueprint: BlueprintFacts) -> Iterator[Finding]:
    hub = facts.hub.cluster
    if hub.queues is None or hub.local_queues is None or facts.hub.checks is None:
        return
    dispatched = set(dispatched_queues(facts.hub))
    for queue in blueprint.queues:
        if queue.name not in hub.queues:
            where = Where(HUB, "ClusterQueue", queue.name)
            yield found(Code.QUEUE_NOT_ON_HUB, where, f"queues.yaml has it, the hub has no ClusterQueue {queue.name}")
            continue
        if queue.name not in dispatched:
            where = Where(HUB, "ClusterQueue", queue.name)
            yield found(Code.QUEUE_NOT_DISPATCHED, where, "none of its checks is MultiKueue's")
        local = hub.local_queues.get((queue.namespace, queue.local_queue))
        where = Where(HUB, "LocalQueue", queue.local_queue, queue.namespace)
        if local is None:
            yield found(Code.QUEUE_NOT_ON_HUB, where, f"queues.yaml leads it to {queue.name}, the hub does not have it")
        elif str(local.cluster_queue) != queue.name:
            seen = f"it leads to ClusterQueue {local.cluster_queue}, and queues.yaml says {queue.name}"
            yield found(Code.QUEUE_NOT_ON_HUB, where, seen)
    for name in sorted(dispatched - {queue.name for queue in blueprint.queues}):
        where = Where(HUB, "ClusterQueue", name)
        yield found(Code.QUEUE_NOT_IN_BLUEPRINT, where, f"queues.yaml has no queue {name}")


def _queues_on_worker(worker: ClusterFacts, blueprint: BlueprintFacts) -> Iterator[Finding]:
    if worker.queues is None:
        return
    for queue in blueprint.queues:
        if queue.name not in worker.queues:
            where = Where(worker.name, "ClusterQueue", queue.name)
            yield found(Code.QUEUE_NOT_ON_WORKER, where, f"{worker.name} has no ClusterQueue {queue.name}")


def _flavors(worker: ClusterFacts, cluster: ClusterPolicy, blueprint: BlueprintFacts) -> Iterator[Finding]:
    if worker.flavors is None:
        return
    for name, flavor in cluster.flavors.items():
        if str(name) not in worker.flavors:
            where = Where(worker.name, "ResourceFlavor", str(name))
            yield found(Code.FLAVOR_NOT_ON_WORKER, where, f"fleet.yaml has it, {worker.name} does not")
            continue
        if worker.nodes is not None:
            bursting = (worker.name, str(name)) in blueprint.bursting
            yield from _nodes(worker, flavor, bursting)


def _nodes(worker: ClusterFacts, flavor: FlavorPolicy, bursting: bool) -> Iterator[Finding]:
    """Count and accelerators. CPU and memory are never exactly what is declared: kubelets keep a part."""
    declared = flavor.nodes
    view = (worker.flavors or {})[str(flavor.name)]
    if declared is None:
        return
    nodes = [node for node in worker.nodes or () if matches(view, node)]
    where = Where(worker.name, "ResourceFlavor", str(flavor.name))
    wrong_count = len(nodes) < declared.count or (len(nodes) > declared.count and not bursting)
    if wrong_count and (nodes or bursting or declared.count == 0):
        seen = f"{len(nodes)} nodes carry its labels, {declared.count} are declared"
        yield found(Code.NODES_DIFFER, where, seen)
    names = {name for name in declared.allocatable.names() if is_gpu(name)}
    names |= {name for node in nodes for name in node.allocatable.names() if is_gpu(name)}
    for resource in sorted(names):
        want = declared.allocatable.get(resource)
        odd = [node for node in nodes if node.allocatable.get(resource) != want]
        if odd:
            seen = f"{odd[0].name} has {odd[0].allocatable.get(resource)} {resource}, {want} are declared"
            seen += f" ({len(odd)} of {len(nodes)} nodes)"
            yield found(Code.NODES_DIFFER, where, seen)
