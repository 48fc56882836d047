"""A healthy fleet as facts, with which nothing is wrong, and small changes to make of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.core.doctor import Code
from dispatcher.core.doctor.facts import (
    Active,
    AdmissionCheckFacts,
    BlueprintFacts,
    CheckOn,
    ClusterFacts,
    CopyFacts,
    FleetFacts,
    Holder,
    HubFacts,
    HubWorkloadFacts,
    JobFacts,
    KubeconfigFacts,
    KueueConfig,
    KueueVersion,
    MultiKueueClusterFacts,
    PlannedQueue,
    QueueChecks,
    Skew,
    Source,
    WorkerFacts,
)
from dispatcher.core.ids import QueueName
from dispatcher.core.policy import NodeShape
from dispatcher.core.snapshot import LocalQueueView
from tests.core_builders import NOW, flavor, flavor_policy, node, policy, queue, quota, res, site

YES = Active(True)
MANAGER = "kueue.x-k8s.io/multikueue"
Change = Callable[[FleetFacts], FleetFacts]

NAME = "kubernetes.io/metadata.name"
SHAPE = NodeShape(2, res(8, cpu=64, memory=512, pods=110))
LOCAL = LocalQueueView("team-a", "main", QueueName("training"))
CONFIG = KueueConfig(
    "kueue-system/kueue-manager-config",
    dispatcher="entrepot.dev/dispatcher",
    frameworks=("batch/job", "jobset.x-k8s.io/jobset"),
)
JOB = JobFacts("Job", "team-a", "train", "main", MANAGER, ttl_s=3600)


def cluster(name: str, gpus: int = 16, **over: Any) -> ClusterFacts:
    """A cluster with one queue, one flavor and one LocalQueue."""
    base = ClusterFacts(
        name,
        kubernetes="v1.36.3",
        identity=f"uid-{name}",
        kueue_served=True,
        kueue=KueueVersion(exact=(0, 19, 2), text="v0.19.2"),
        skew=Skew(-400, 700),
        denied=(),
        account=f"system:serviceaccount:entrepot-system:{name}",
        namespaces={name: {NAME: name} for name in ("default", "team-a")},
        queues={"training": queue("training", quota(gpus))},
        queue_checks={"training": QueueChecks(YES)},
        cohorts={},
        local_queues={("team-a", "main"): LOCAL},
        flavors={"h100": flavor()},
        kinds=frozenset({("jobset.x-k8s.io", "jobset")}),
    )
    return replace(base, **over)


def healthy() -> FleetFacts:
    """Two workers of two nodes, a hub with room for both, one job on its way. `diagnose` finds nothing."""
    plenty = queue("training", quota(128, resources={"cpu": 10**9, "memory": 10**18}))
    hub = HubFacts(
        cluster=cluster(
            "hub",
            config=CONFIG,
            queues={"training": plenty},
            queue_checks={"training": QueueChecks(YES, (("fleet", ()),))},
        ),
        policy_faults=(),
        checks={"fleet": AdmissionCheckFacts("fleet", CheckOn.MULTIKUEUE, YES, "fleet")},
        configs={"fleet": ("cloud", "onprem")},
        clusters={
            name: MultiKueueClusterFacts(name, YES, Source.SECRET, f"{name}-kubeconfig") for name in ("cloud", "onprem")
        },
        kubeconfigs=(KubeconfigFacts("onprem", Holder.MULTIKUEUE, "kueue-system/onprem-kubeconfig"),),
        jobs=(JOB,),
        workloads=(HubWorkloadFacts("team-a", "job-train-1", "Job", "train", "onprem"),),
        bound_pods=(),
    )
    workers = tuple(
        WorkerFacts(
            cluster(name, nodes=(node("n1"), node("n2"))),
            copies=(CopyFacts("team-a", "job-train-1", "multikueue", NOW),),
            foreign_jobs=(),
        )
        for name in ("cloud", "onprem")
    )
    sites = [site(name, flavors=[flavor_policy(shape=SHAPE)]) for name in ("cloud", "onprem")]
    plan = BlueprintFacts("config", policy(sites), queues=(PlannedQueue("training", "team-a", "main"),))
    return FleetFacts(NOW, hub, workers, plan)


# --- changes -----------------------------------------------------------------------------------------------------


def hub(**over: Any) -> Change:
    """Change parts of HubFacts."""
    return lambda facts: replace(facts, hub=replace(facts.hub, **over))


def hub_cluster(**over: Any) -> Change:
    """Change parts of the hub's ClusterFacts."""
    return lambda facts: replace(facts, hub=replace(facts.hub, cluster=replace(facts.hub.cluster, **over)))


def config(**over: Any) -> Change:
    """Change the hub's Kueue Configuration."""
    return hub_cluster(config=replace(CONFIG, **over))


def worker(**over: Any) -> Change:
    """Change parts of the ClusterFacts of worker onprem."""
    return _onprem(lambda found: replace(found, cluster=replace(found.cluster, **over)))


def worker_facts(**over: Any) -> Change:
    """Change what only workers have, of worker onprem."""
    return _onprem(lambda found: replace(found, **over))


def _onprem(change: Callable[[WorkerFacts], WorkerFacts]) -> Change:
    def apply(facts: FleetFacts) -> FleetFacts:
        changed = [change(each) if each.cluster.name == "onprem" else each for each in facts.workers]
        return replace(facts, workers=tuple(changed))

    return apply


def blueprint(**over: Any) -> Change:
    def apply(facts: FleetFacts) -> FleetFacts:
        assert facts.blueprint is not None
        return replace(facts, blueprint=replace(facts.blueprint, **over))

    return apply


def policy_change(**over: Any) -> Change:
    """Change parts of what the blueprint says."""

    def apply(facts: FleetFacts) -> FleetFacts:
        assert facts.blueprint is not None
        assert facts.blueprint.policy is not None
        return blueprint(policy=replace(facts.blueprint.policy, **over))(facts)

    return apply


def no_blueprint(facts: FleetFacts) -> FleetFacts:
    return replace(facts, blueprint=None)


def kubeconfig(**over: Any) -> Change:
    base = KubeconfigFacts("onprem", Holder.MULTIKUEUE, "kueue-system/onprem-kubeconfig")
    return hub(kubeconfigs=(replace(base, **over),))


def multikueue_cluster(**over: Any) -> Change:
    def apply(facts: FleetFacts) -> FleetFacts:
        assert facts.hub.clusters is not None
        clusters = dict(facts.hub.clusters)
        clusters["onprem"] = replace(clusters["onprem"], **over)
        return hub(clusters=clusters)(facts)

    return apply


def checks(*extra: AdmissionCheckFacts, on_queue: tuple[tuple[str, tuple[str, ...]], ...]) -> Change:
    """More checks on the hub, and what the hub queue names."""

    def apply(facts: FleetFacts) -> FleetFacts:
        known: Mapping[str, AdmissionCheckFacts] = {
            **(facts.hub.checks or {}),
            **{check.name: check for check in extra},
        }
        changed = hub(checks=known)(facts)
        return hub_cluster(queue_checks={"training": QueueChecks(YES, on_queue)})(changed)

    return apply


def all_of(*changes: Change) -> Change:
    def apply(facts: FleetFacts) -> FleetFacts:
        for change in changes:
            facts = change(facts)
        return facts

    return apply


def same(facts: FleetFacts) -> FleetFacts:
    return facts


# --- tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """`broken` gives exactly `code` (and `beside`, its unavoidable company); `sound` is the near miss that does not."""

    code: Code
    says: str
    broken: Change
    sound: Change = same
    beside: frozenset[Code] = frozenset()


def also(*codes: Code) -> frozenset[Code]:
    return frozenset(codes)
