"""Every finding of the doctor: one row with facts that have it (and nothing else), and facts that nearly do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dispatcher.core.doctor import CATALOG, Code, Severity, diagnose
from dispatcher.core.doctor.facts import (
    Active,
    AdmissionCheckFacts,
    CheckOn,
    CopyFacts,
    FleetFacts,
    Holder,
    JobFacts,
    KubeconfigFault,
    KueueVersion,
    LintFact,
    MultiKueueClusterFacts,
    PlannedQueue,
    PolicyFault,
    QueueChecks,
    RemoteJob,
    Skew,
    Source,
    Unread,
    Verb,
)
from dispatcher.core.doctor.versions import KNOWN_BUGS, parse_version
from dispatcher.core.ids import QueueName
from dispatcher.core.policy import Away, QueuePolicy, Unreachable
from dispatcher.core.snapshot import CohortView, StopPolicy
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import NOW, QUEUE, flavor, node, plan, queue, quota, site
from tests.core_builders import policy as policy_of
from tests.unit.doctor_data import DATA_ROWS
from tests.unit.doctor_facts import (
    CONFIG,
    JOB,
    LOCAL,
    NAME,
    YES,
    Change,
    Row,
    all_of,
    also,
    blueprint,
    checks,
    config,
    healthy,
    hub,
    hub_cluster,
    kubeconfig,
    multikueue_cluster,
    no_blueprint,
    policy_change,
    worker,
    worker_facts,
)
from tests.unit.doctor_namespaces import NAMESPACE_ROWS
from tests.unit.doctor_rights import RIGHTS_ROWS

TRAINING = WorkloadClass.TRAINING
NO = Active(False, reason="R", message="m")
OLD = timedelta(hours=2)


def kueue(text: str) -> Change:
    return hub_cluster(kueue=KueueVersion(exact=parse_version(text), text=text))


def job(**over: Any) -> Change:
    return hub(jobs=(replace(JOB, **over),))


def hub_queue(**over: Any) -> Change:
    return hub_cluster(queues={"training": replace(hub_plenty(), **over)})


def hub_plenty() -> Any:
    return (healthy().hub.cluster.queues or {})["training"]


def check(name: str, controller: str = "entrepot.dev/budget", active: Active = YES) -> AdmissionCheckFacts:
    return AdmissionCheckFacts(name, controller, active)


def worker_queue(**over: Any) -> Change:
    return worker(queues={"training": replace(queue("training", quota(16)), **over)})


MIG_NODE = node("n3", 0, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"})
TWIN_FLAVOR = {"h100": flavor(), "also": flavor("also", {"pool": "gpu"})}
TWO_FLAVORS = {"training": queue("training", (*quota(8), *quota(8, flavor="also")))}


def class_rule(course: Away, after_s: int) -> Change:
    """What one class says of clusters that cannot be reached."""
    return policy_change(classes={TRAINING: plan(TRAINING, on_unreachable=Unreachable(course, after_s))})


def queue_rule(course: Away, after_s: int) -> Change:
    return policy_change(queues={QUEUE: QueuePolicy(QUEUE, TRAINING, on_unreachable=Unreachable(course, after_s))})


ROWS: tuple[Row, ...] = (
    # --- access
    Row(Code.UNREACHABLE, "a worker that does not answer is named, and stops nothing else", worker(error="no route")),
    Row(
        Code.NOT_LOOKED,
        "what could not be read is a note, unless a missing permission says the same",
        worker(unread=(Unread("list jobs.batch", "forbidden"),)),
    ),
    Row(
        Code.RBAC_MISSING,
        "a missing verb is an error, and not a note beside it",
        worker(denied=(Verb("list", "", "nodes"),), unread=(Unread("list nodes", "forbidden"),)),
        worker(denied=None),
    ),
    Row(
        Code.CLOCK_SKEW,
        "a clock that is surely more than five seconds off is skewed; one that may be is not",
        worker(skew=Skew(5800, 6900)),
        worker(skew=Skew(4900, 6000)),
        also(Code.CLOCKS_DIFFER),
    ),
    Row(
        Code.CLOCKS_DIFFER,
        "two clusters apart from each other are named although each is near to us",
        all_of(hub_cluster(skew=Skew(-4900, -3900)), worker(skew=Skew(3000, 4000))),
        all_of(hub_cluster(skew=Skew(-2000, -1000)), worker(skew=Skew(1000, 2000))),
    ),
    Row(Code.SAME_CLUSTER_TWICE, "two workers with one kube-system are one cluster", worker(identity="uid-cloud")),
    # --- versions
    Row(Code.KUBERNETES_TOO_OLD, "Kubernetes 1.34 has no such policy", hub_cluster(kubernetes="v1.34.9")),
    Row(
        Code.KUBERNETES_UNTESTED,
        "Kubernetes 1.35 works with care, 1.36 without",
        hub_cluster(kubernetes="v1.35.4"),
        hub_cluster(kubernetes="v1.36.0+vendor.1"),
    ),
    Row(
        Code.KUEUE_NOT_SERVED,
        "a worker without v1beta2 has no Kueue that we can use",
        worker(kueue_served=False),
        worker(kueue_served=None),
    ),
    Row(Code.KUEUE_TOO_OLD, "Kueue 0.16 is too old also on a worker", worker(kueue=KueueVersion(exact=(0, 16, 9)))),
    Row(Code.KUEUE_KNOWN_BUG, "0.18.3 evicts at a short break of a watch", kueue("v0.18.3"), kueue("v0.19.2")),
    Row(
        Code.KUEUE_SKIPS_CHECKS,
        "0.17.0 does not wait for other checks, 0.17.1 does",
        kueue("v0.17.0"),
        kueue("v0.17.1"),
        also(Code.KUEUE_KNOWN_BUG, Code.KUEUE_DELETES_FOREIGN),
    ),
    Row(
        Code.KUEUE_DELETES_FOREIGN,
        "0.17.5 deletes foreign jobs, 0.17.6 does not",
        kueue("v0.17.5"),
        kueue("v0.17.6"),
        also(Code.KUEUE_KNOWN_BUG),
    ),
    Row(Code.KUEUE_UNTESTED, "0.20 has not been tried", kueue("v0.20.0"), kueue("v0.19.7")),
    Row(
        Code.KUEUE_VERSION_UNKNOWN,
        "a lower bound of the hub's version is not the version",
        hub_cluster(kueue=KueueVersion(floor=(0, 19, 0))),
        worker(kueue=KueueVersion()),
    ),
    # --- hub configuration
    Row(Code.CONFIG_UNREADABLE, "a file that is no Configuration is said to be none", config(problem="not YAML")),
    Row(
        Code.DISPATCHER_BUILT_IN,
        "no dispatcherName means AllAtOnce",
        config(dispatcher=None),
        hub_cluster(config=None),
    ),
    Row(
        Code.DISPATCHER_BUILT_IN,
        "Incremental is built in",
        config(dispatcher="kueue.x-k8s.io/multikueue-dispatcher-incremental"),
    ),
    Row(Code.DISPATCHER_OTHER, "another name works, and is noted", config(dispatcher="example.com/dispatcher")),
    Row(
        Code.POLICY_MISSING,
        "FR-NOM-01: without the policy nothing can latch",
        hub(policy_faults=((PolicyFault.MISSING, ""),)),
        hub(policy_faults=None),
    ),
    Row(
        Code.POLICY_EDITED,
        "a policy that ignores failures is not the one that is shipped",
        hub(policy_faults=((PolicyFault.FAILURE_POLICY, "Ignore"),)),
    ),
    Row(
        Code.POLICY_EDITED,
        "a policy with parameters does nothing without them",
        hub(policy_faults=((PolicyFault.PARAMETERS, "ConfigMap"),)),
    ),
    Row(
        Code.POLICY_NOT_BOUND,
        "a policy without a binding is not in force",
        hub(policy_faults=((PolicyFault.NOT_BOUND, ""),)),
    ),
    Row(
        Code.POLICY_OLD_API,
        "a writer through v1beta1 goes past the policy",
        hub(policy_faults=((PolicyFault.OLD_API_SERVED, ""),)),
    ),
    Row(
        Code.MERGE_PATCH_GATE,
        "the merge-patch gate stands in for a missing policy",
        all_of(
            hub(policy_faults=((PolicyFault.MISSING, ""),)), config(gates=(("WorkloadRequestUseMergePatch", True),))
        ),
        config(gates=(("WorkloadRequestUseMergePatch", True),)),
    ),
    Row(
        Code.GATE,
        "waiting for admission turned off is a warning, on is the default",
        config(gates=(("MultiKueueWaitForWorkloadAdmitted", False),)),
        config(gates=(("MultiKueueWaitForWorkloadAdmitted", True),)),
    ),
    Row(
        Code.GATE,
        "external frameworks need the gate of their adapters",
        config(
            external_frameworks=("Foo.v1.example.com",),
            gates=(("MultiKueueAdaptersForCustomJobs", False),),
            frameworks=("batch/job",),
        ),
        config(gates=(("MultiKueueAdaptersForCustomJobs", False),)),
        also(Code.FRAMEWORK_NOT_ON_WORKER),
    ),
    Row(Code.GC_OFF, "a gcInterval of 0 turns collection off", config(gc_interval_s=0), config(gc_interval_s=5)),
    Row(
        Code.LOST_TIMEOUT_SHORT,
        "Kueue must not give up on a worker before we call it silent",
        all_of(config(worker_lost_timeout_s=59), job(ttl_s=None)),
        all_of(config(worker_lost_timeout_s=60), job(ttl_s=None)),
    ),
    Row(
        Code.MOVE_TOO_LATE,
        "a class that moves its work at Kueue's default timeout is late: Kueue was first",
        class_rule(Away.MOVE, 900),
        class_rule(Away.MOVE, 899),
    ),
    Row(
        Code.MOVE_TOO_LATE,
        "a queue's own rule is held against the timeout that is set",
        all_of(queue_rule(Away.MOVE, 600), config(worker_lost_timeout_s=600)),
        all_of(queue_rule(Away.MOVE, 600), config(worker_lost_timeout_s=601)),
    ),
    Row(
        Code.MOVE_UNKNOWN,
        "what Kueue's Configuration says could not be read: that is said, and not taken for good",
        all_of(queue_rule(Away.MOVE, 60), hub_cluster(config=None)),
        all_of(queue_rule(Away.STAY, 0), class_rule(Away.ASK, 0), hub_cluster(config=None)),
    ),
    Row(
        Code.MOVE_UNKNOWN,
        "nor is one that is there and cannot be understood",
        all_of(class_rule(Away.MOVE, 60), config(problem="it is no Configuration")),
        class_rule(Away.MOVE, 60),
        also(Code.CONFIG_UNREADABLE),
    ),
    Row(
        Code.ACCOUNTING_CHANGED,
        "a worker that transforms resources is named",
        worker(config=replace(CONFIG, accounting_changes=("resources.transformations",))),
        worker(config=CONFIG),
    ),
    Row(
        Code.FRAMEWORK_NOT_ON_WORKER,
        "an enabled kind that a worker does not serve keeps it from ever being active",
        config(frameworks=("batch/job", "ray.io/rayjob")),
        all_of(config(frameworks=("batch/job", "pod", "statefulset")), worker(kinds=frozenset())),
    ),
    Row(
        Code.MANAGED_BY_IGNORED,
        "of kinds with an adapter only those that are known not to obey managedBy are told",
        config(frameworks=("trainer.kubeflow.org/trainjob",)),
        config(frameworks=("batch/job", "jobset.x-k8s.io/jobset")),
        also(Code.FRAMEWORK_NOT_ON_WORKER),
    ),
    # --- MultiKueue
    Row(
        Code.NO_MULTIKUEUE_CHECK,
        "without a MultiKueue check nothing is dispatched",
        all_of(
            no_blueprint, hub(checks={}), hub_cluster(queue_checks={}, queues={}), hub(configs={"fleet": ("cloud",)})
        ),
        beside=also(Code.CLUSTER_UNUSED),
    ),
    Row(
        Code.CHECK_INACTIVE,
        "an inactive check comes with its reason",
        checks(check("budget", active=NO), on_queue=(("fleet", ()), ("budget", ()))),
        checks(check("budget"), on_queue=(("fleet", ()), ("budget", ()))),
    ),
    Row(
        Code.CHECK_INACTIVE,
        "a check that no controller has ever looked at asks for its controller",
        checks(check("budget", active=Active(False, known=False)), on_queue=(("fleet", ()), ("budget", ()))),
    ),
    Row(
        Code.CONFIG_MISSING,
        "a check that names no existing config has no clusters",
        hub(checks={"fleet": AdmissionCheckFacts("fleet", CheckOn.MULTIKUEUE, YES, "gone")}),
    ),
    Row(
        Code.CONFIG_UNKNOWN_CLUSTER,
        "a name in the config without an object is never used",
        hub(configs={"fleet": ("cloud", "onprem", "moon")}),
    ),
    Row(
        Code.CONFIG_TOO_MANY,
        "twenty clusters are the most",
        hub(configs={"fleet": ("cloud", "onprem", *(f"c{n}" for n in range(19)))}),
        hub(configs={"fleet": ("cloud", "onprem", *(f"c{n}" for n in range(18)))}),
        also(Code.CONFIG_UNKNOWN_CLUSTER),
    ),
    Row(Code.CONFIG_DUPLICATE, "a name is listed once", hub(configs={"fleet": ("cloud", "onprem", "cloud")})),
    Row(Code.CLUSTER_UNUSED, "a cluster in no config is noted", hub(configs={"fleet": ("cloud",)})),
    Row(
        Code.CLUSTER_INACTIVE,
        "FR-AUT-02: an insecure kubeconfig takes the cluster out, and the reason is explained",
        multikueue_cluster(active=Active(False, reason="InsecureKubeConfig", message="skip tls")),
    ),
    Row(Code.CLUSTER_DELETING, "FR-NOM-04: a cluster under deletion is named", multikueue_cluster(deleting=True)),
    Row(Code.CLUSTER_BY_PATH, "a kubeconfig by path is noted", multikueue_cluster(source=Source.PATH, location="/x")),
    Row(
        Code.ORIGIN_SHARED,
        "an old copy of our origin that the hub does not have is somebody else's",
        worker_facts(copies=(CopyFacts("team-a", "other", "multikueue", NOW - OLD),)),
        worker_facts(
            copies=(
                CopyFacts("team-a", "fresh", "multikueue", NOW),
                CopyFacts("team-a", "theirs", "hub-2", NOW - OLD),
                CopyFacts("team-a", "job-train-1", "multikueue", NOW - OLD),
            )
        ),
    ),
    # --- kubeconfigs
    *(
        Row(code, f"a kubeconfig with {fault.value} is {code.value}", kubeconfig(faults=((fault, "detail"),)))
        for code, fault in (
            (Code.SECRET_MISSING, KubeconfigFault.NO_SECRET),
            (Code.SECRET_NO_KEY, KubeconfigFault.NO_KEY),
            (Code.KUBECONFIG_INSECURE, KubeconfigFault.INSECURE),
            (Code.KUBECONFIG_INSECURE, KubeconfigFault.NOT_HTTPS),
            (Code.KUBECONFIG_REFUSED, KubeconfigFault.CA_FILE),
            (Code.KUBECONFIG_REFUSED, KubeconfigFault.CREDENTIAL_FILE),
            (Code.KUBECONFIG_REFUSED, KubeconfigFault.EXEC),
            (Code.KUBECONFIG_REFUSED, KubeconfigFault.AUTH_PROVIDER),
            (Code.KUBECONFIG_REFUSED, KubeconfigFault.BASIC_AUTH),
            (Code.KUBECONFIG_BAD_HOST, KubeconfigFault.BAD_HOST),
            (Code.KUBECONFIG_MALFORMED, KubeconfigFault.MALFORMED),
            (Code.KUBECONFIG_MALFORMED, KubeconfigFault.NO_CREDENTIAL),
        )
    ),
    Row(
        Code.KUBECONFIG_EXPIRED,
        "a token that ended a second ago has expired",
        kubeconfig(token_ends=NOW - timedelta(seconds=1)),
    ),
    Row(
        Code.KUBECONFIG_EXPIRING,
        "a certificate that ends within seven days is about to, one that ends in eight is not",
        kubeconfig(certificate_ends=NOW + timedelta(days=7)),
        kubeconfig(certificate_ends=NOW + timedelta(days=8)),
    ),
    Row(
        Code.KUBECONFIG_RBAC,
        "MultiKueue's account must be able to make copies",
        kubeconfig(denied=(Verb("create", "kueue.x-k8s.io", "workloads"),)),
    ),
    # --- queues
    Row(
        Code.TWO_MULTIKUEUE_CHECKS,
        "one MultiKueue check a queue; a check of another kind may stand beside it",
        checks(
            AdmissionCheckFacts("second", CheckOn.MULTIKUEUE, YES, "fleet"), on_queue=(("fleet", ()), ("second", ()))
        ),
        checks(check("budget"), on_queue=(("fleet", ()), ("budget", ()))),
    ),
    Row(
        Code.CHECK_PER_FLAVOR,
        "the MultiKueue check holds for all flavors; another one may be limited",
        checks(on_queue=(("fleet", ("h100",)),)),
        checks(check("budget"), on_queue=(("fleet", ()), ("budget", ("h100",)))),
    ),
    Row(
        Code.CHECK_WITH_PROVISIONING,
        "provisioning belongs to the workers",
        checks(check("buy", CheckOn.PROVISIONING), on_queue=(("fleet", ()), ("buy", ()))),
    ),
    Row(
        Code.TOO_MANY_CHECKS,
        "eight checks are the most",
        checks(*(check(f"c{n}") for n in range(8)), on_queue=(("fleet", ()), *((f"c{n}", ()) for n in range(8)))),
        checks(*(check(f"c{n}") for n in range(7)), on_queue=(("fleet", ()), *((f"c{n}", ()) for n in range(7)))),
    ),
    Row(
        Code.CHECK_NOT_FOUND, "a queue may only name checks that exist", checks(on_queue=(("fleet", ()), ("gone", ())))
    ),
    Row(
        Code.HUB_QUEUE_INACTIVE,
        "an inactive hub queue comes with Kueue's reason",
        all_of(
            hub_queue(active=False),
            hub_cluster(queue_checks={"training": QueueChecks(NO, (("fleet", ()),))}),
        ),
    ),
    Row(
        Code.HUB_QUEUE_HELD,
        "a queue on hold is a note, not an inactive queue",
        all_of(
            hub_queue(active=False, stop_policy=StopPolicy.HOLD),
            hub_cluster(queue_checks={"training": QueueChecks(Active(False, reason="Stopped"), (("fleet", ()),))}),
        ),
    ),
    Row(
        Code.HUB_QUOTA_SMALL,
        "the hub needs the workers' sum; what its cohort lends counts",
        hub_queue(quotas=quota(31, resources={"cpu": 10**9, "memory": 10**18})),
        all_of(
            hub_queue(quotas=quota(20, resources={"cpu": 10**9, "memory": 10**18}), cohort="all"),
            hub_cluster(cohorts={"all": CohortView("all", quotas=quota(12))}),
        ),
    ),
    Row(
        Code.HUB_QUOTA_UNCOVERED,
        "a resource that workers offer must be covered on the hub",
        worker_queue(quotas=(*quota(16), quota(1, resources={"nvidia.com/mig-1g.10gb": 7})[-1])),
        worker_queue(quotas=(*quota(16), replace(quota(1)[0], resource="nvidia.com/mig-1g.10gb", nominal=0))),
    ),
    Row(
        Code.NAMESPACE_MISSING,
        "a worker needs the namespace; without it the missing LocalQueue is not told as well",
        worker(namespaces={"default": {NAME: "default"}}, local_queues={}),
        worker(namespaces=None),
    ),
    Row(
        Code.LOCAL_QUEUE_MISSING,
        "a worker needs the LocalQueue of the same name",
        worker(local_queues={}),
        worker(local_queues=None),
    ),
    Row(
        Code.WORKER_QUEUE_MISSING,
        "a worker's LocalQueue must lead somewhere",
        worker(local_queues={("team-a", "main"): replace(LOCAL, cluster_queue=QueueName("gone"))}),
    ),
    Row(
        Code.WORKER_QUEUE_INACTIVE,
        "a worker's queue that is not active is left out, and said",
        all_of(worker_queue(active=False), worker(queue_checks={"training": QueueChecks(NO)})),
    ),
    Row(
        Code.WORKER_QUEUE_HELD,
        "a worker's queue on hold is a note",
        worker_queue(active=False, stop_policy=StopPolicy.HOLD_AND_DRAIN),
    ),
    # --- flavors and nodes
    Row(
        Code.FLAVOR_MISSING,
        "a queue may only name flavors that exist",
        all_of(no_blueprint, worker(flavors={})),
        worker(flavors=None),
        also(Code.GPUS_WITHOUT_FLAVOR),
    ),
    Row(
        Code.FLAVOR_WITHOUT_NODES,
        "a flavor with quota needs a node, unless its nodes are bought for a while",
        all_of(no_blueprint, worker(nodes=())),
        all_of(worker(nodes=()), blueprint(bursting=frozenset({("onprem", "h100")}), policy=policy_of())),
    ),
    Row(
        Code.FLAVORS_OVERLAP,
        "two flavors that select one node promise it twice; without quota in both they do not",
        worker(flavors=TWIN_FLAVOR, queues=TWO_FLAVORS),
        worker(flavors=TWIN_FLAVOR),
    ),
    Row(
        Code.GPUS_WITHOUT_FLAVOR,
        "GPUs that no flavor selects lie idle; nodes without GPUs do not matter",
        worker(nodes=(node("n1"), node("n2"), node("n3", labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}))),
        worker(nodes=(node("n1"), node("n2"), node("n3", 0))),
    ),
    Row(
        Code.GPU_LABEL_UNKNOWN,
        "a misspelled product is told with what was probably meant",
        worker(nodes=(node("n1"), node("n2"), node("n3", 0, labels={"nvidia.com/gpu.product": "NVIDIA-H1OO-80GB"}))),
        worker(
            nodes=(node("n1"), node("n2"), node("n3", 0, labels={"nvidia.com/gpu.product": "nvidia h100_80gb HBM3"}))
        ),
    ),
    # --- jobs
    Row(
        Code.TTL_SHORT,
        "FR-RAC-03: a TTL below the sync time loses results",
        job(ttl_s=0),
        job(ttl_s=0, finished=True),
    ),
    Row(
        Code.TTL_RISKY,
        "FR-RAC-03: a TTL below the outage grace may lose results, one above it does not",
        job(ttl_s=989),
        job(ttl_s=990),
    ),
    Row(
        Code.NOT_MANAGED,
        "a job in a dispatched queue must be managed by MultiKueue; in another queue it need not",
        job(managed_by=""),
        job(managed_by="", queue="local"),
    ),
    Row(
        Code.HUB_RUNS_PODS,
        "FR-RAC-11: pods of a dispatched job on the hub are a second run",
        hub(bound_pods=(("team-a", "train-x1", ("Job/train",)),)),
        hub(bound_pods=(("team-b", "train-x1", ("Job/train",)), ("team-a", "web-1", ("ReplicaSet/web",)))),
    ),
    Row(
        Code.NAME_TAKEN,
        "FR-RAC-07: a local job of the same name on a worker is in the way",
        worker_facts(foreign_jobs=(RemoteJob("Job", "team-a", "train"),)),
        worker_facts(foreign_jobs=(RemoteJob("Job", "team-b", "train"), RemoteJob("JobSet", "team-a", "train"))),
    ),
    # --- blueprint
    Row(
        Code.BLUEPRINT_ERROR,
        "errors of the files are shown with their place",
        blueprint(policy=None, lint=(LintFact("fleet.yaml", 3, 5, True, "unknown key", "remove it"),)),
    ),
    Row(
        Code.BLUEPRINT_WARNING,
        "warnings of the files are shown, too",
        blueprint(lint=(LintFact("fleet.yaml", 3, 5, False, "old price", "renew it"),)),
    ),
    Row(
        Code.RULES_UNSIGNED,
        "rules that nobody has signed are told, since anybody can change them",
        blueprint(signed=False),
    ),
    Row(
        Code.CLUSTER_NOT_IN_BLUEPRINT,
        "a cluster of the hub without a description is never chosen",
        lambda facts: hub(
            clusters={**(facts.hub.clusters or {}), "moon": MultiKueueClusterFacts("moon", YES, Source.SECRET)},
            configs={"fleet": ("cloud", "onprem", "moon")},
        )(facts),
    ),
    Row(
        Code.CLUSTER_NOT_ON_HUB,
        "a described cluster that the hub lacks cannot be nominated",
        blueprint(policy=policy_of([site(name, flavors=[]) for name in ("cloud", "moon", "onprem")])),
    ),
    Row(
        Code.QUEUE_NOT_ON_HUB,
        "a queue of the plan must be on the hub, and so must its LocalQueue",
        blueprint(queues=(PlannedQueue("training", "team-a", "main"), PlannedQueue("new", "team-a", "new"))),
        beside=also(Code.QUEUE_NOT_ON_WORKER),
    ),
    Row(
        Code.QUEUE_NOT_DISPATCHED,
        "a queue of the plan without a MultiKueue check runs on the hub",
        checks(check("budget"), on_queue=(("budget", ()),)),
    ),
    Row(
        Code.QUEUE_NOT_ON_WORKER,
        "a queue of the plan must be on every worker",
        worker(queues={}),
        worker(queues=None),
        also(Code.WORKER_QUEUE_MISSING),
    ),
    Row(
        Code.QUEUE_NOT_IN_BLUEPRINT,
        "a dispatched queue without a plan is ours all the same",
        blueprint(queues=()),
    ),
    Row(
        Code.FLAVOR_NOT_ON_WORKER,
        "a described flavor must be on its worker",
        worker(flavors={}, queues={"training": queue("training")}),
        beside=also(Code.GPUS_WITHOUT_FLAVOR),
    ),
    Row(
        Code.NODES_DIFFER,
        "fewer nodes than declared are told, also where more may be bought",
        all_of(worker(nodes=(node("n1"),)), blueprint(bursting=frozenset({("onprem", "h100")}))),
        all_of(worker(nodes=(node("n1"), node("n2"), node("n3"))), blueprint(bursting=frozenset({("onprem", "h100")}))),
    ),
    Row(
        Code.NODES_DIFFER,
        "a node with fewer GPUs than declared is told",
        worker(nodes=(node("n1"), node("n2", 7))),
    ),
    *DATA_ROWS,
    *NAMESPACE_ROWS,
    *RIGHTS_ROWS,
)


def codes(facts: FleetFacts) -> set[Code]:
    return {finding.code for finding in diagnose(facts)}


def test_a_healthy_fleet_has_no_finding_at_all() -> None:
    assert [f"{f.code} {f.where.text()}: {f.seen}" for f in diagnose(healthy())] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.code.value}: {row.says}")
def test_a_finding_is_made_for_what_is_wrong_and_only_for_that(row: Row) -> None:
    assert codes(row.broken(healthy())) == {row.code} | row.beside
    assert row.code not in codes(row.sound(healthy()))


def test_every_code_has_a_row() -> None:
    assert set(Code) - {row.code for row in ROWS} == set()


def test_every_code_is_in_the_catalogue_and_every_finding_has_words_for_all_parts() -> None:
    assert set(CATALOG) == set(Code)
    for row in ROWS:
        for finding in diagnose(row.broken(healthy())):
            assert finding.seen
            assert finding.fix
            assert finding.why
            assert finding.where.text()


def test_a_hub_that_cannot_be_reached_gives_that_one_finding() -> None:
    facts = replace(healthy(), hub=replace(healthy().hub, cluster=replace(healthy().hub.cluster, error="refused")))
    unseen = replace(facts, workers=(), hub=type(facts.hub)(facts.hub.cluster))
    assert codes(unseen) == {Code.UNREACHABLE}


def test_nothing_is_concluded_from_what_was_not_read() -> None:
    blind = all_of(
        hub(checks=None, configs=None, clusters=None, jobs=None, workloads=None, bound_pods=None, policy_faults=None),
        hub_cluster(queues=None, cohorts=None, local_queues=None, flavors=None, config=None, skew=None, denied=None),
        worker(queues=None, local_queues=None, flavors=None, nodes=None, namespaces=None, kinds=None, skew=None),
        worker_facts(copies=None, foreign_jobs=None),
    )
    assert codes(blind(healthy())) == set()


def test_a_hub_quota_whose_cohort_cannot_be_read_is_not_judged() -> None:
    small = hub_queue(quotas=quota(1, resources={"cpu": 10**9, "memory": 10**18}), cohort="all")
    assert Code.HUB_QUOTA_SMALL in codes(small(healthy()))
    assert codes(all_of(small, hub_cluster(cohorts=None))(healthy())) == set()


@pytest.mark.parametrize(
    ("version", "bugs"),
    [
        ("0.17.0", {"#12999", "#13047", "#13188", "#11515", "#12612", "#11559", "#11378", "#10340", "#14550"}),
        ("0.17.5", {"#12999", "#13047", "#13188", "#11515", "#12612", "#14550"}),
        ("0.17.7", {"#12999", "#13047", "#13188", "#14550"}),
        ("0.17.8", {"#14550"}),
        ("0.18.3", {"#12999", "#14550"}),
        ("0.18.4", {"#14550"}),
        ("0.19.2", set()),
        ("0.20.0", set()),
    ],
)
def test_known_bugs_hold_from_their_version_to_the_fix_of_each_minor(version: str, bugs: set[str]) -> None:
    parsed = parse_version(version)
    assert parsed is not None
    assert {bug.key for bug in KNOWN_BUGS if bug.concerns(parsed)} == bugs


def test_a_known_bug_names_the_nearest_version_without_it() -> None:
    finding = next(f for f in diagnose(kueue("v0.17.3")(healthy())) if "#12999" in f.seen)
    assert "0.17.8" in finding.fix
    assert finding.severity is Severity.ERROR


def test_before_0_17_6_a_taken_name_is_an_error() -> None:
    taken = worker_facts(foreign_jobs=(RemoteJob("Job", "team-a", "train"),))
    by_version = {
        text: next(f.severity for f in diagnose(all_of(taken, kueue(text))(healthy())) if f.code is Code.NAME_TAKEN)
        for text in ("v0.17.5", "v0.17.6")
    }
    assert by_version == {"v0.17.5": Severity.ERROR, "v0.17.6": Severity.WARNING}


def test_a_hub_that_is_its_own_worker_is_a_warning() -> None:
    (finding,) = diagnose(worker(identity="uid-hub")(healthy()))
    assert (finding.code, finding.severity) == (Code.SAME_CLUSTER_TWICE, Severity.WARNING)


def test_a_misspelled_label_is_told_with_what_was_meant() -> None:
    odd = worker(nodes=(node("n1"), node("n2"), node("n3", 0, labels={"nvidia.com/gpu.product": "NVIDIA-H1OO-80GB"})))
    (finding,) = diagnose(odd(healthy()))
    assert "did you mean h100-80gb?" in finding.seen
    (shared,) = diagnose(worker(nodes=(node("n1"), node("n2"), MIG_NODE))(healthy()))
    assert "time-sliced" in shared.seen


def test_findings_come_in_groups_the_worst_first_and_always_the_same() -> None:
    many = all_of(job(ttl_s=0, managed_by=""), worker(local_queues={}), config(dispatcher=None, gc_interval_s=0))
    first = diagnose(many(healthy()))
    assert [f.code for f in first] == [
        Code.DISPATCHER_BUILT_IN,
        Code.GC_OFF,
        Code.LOCAL_QUEUE_MISSING,
        Code.NOT_MANAGED,
        Code.TTL_SHORT,
    ]
    assert first == diagnose(many(healthy()))


def test_a_job_of_another_kind_in_the_queue_is_seen_as_well() -> None:
    sets = hub(jobs=(JOB, JobFacts("JobSet", "team-a", "rl", "main", "")))
    (finding,) = diagnose(sets(healthy()))
    assert finding.where.text() == "hub: JobSet team-a/rl"


def test_fr_nom_01_a_hub_whose_nominations_nobody_clears_is_an_error() -> None:
    (finding,) = diagnose(hub(policy_faults=((PolicyFault.NOT_BOUND, ""),))(healthy()))
    assert (finding.severity, finding.section) == (Severity.ERROR, "3.2")
    assert "MutatingAdmissionPolicyBinding" in finding.fix


def test_fr_rac_03_a_ttl_shorter_than_sync_and_outage_grace_is_told_with_the_shortest_good_one() -> None:
    (short,) = diagnose(job(ttl_s=0)(healthy()))
    assert (short.code, short.severity) == (Code.TTL_SHORT, Severity.ERROR)
    assert "990 or more" in short.fix
    patient = all_of(config(worker_lost_timeout_s=7200), job(ttl_s=3600))
    (risky,) = diagnose(patient(healthy()))
    assert (risky.code, risky.severity) == (Code.TTL_RISKY, Severity.WARNING)


def test_fr_rac_07_a_local_job_of_the_same_name_is_told_before_anything_is_lost() -> None:
    (finding,) = diagnose(worker_facts(foreign_jobs=(RemoteJob("Job", "team-a", "train"),))(healthy()))
    assert finding.where.text() == "onprem: Job team-a/train"


def test_fr_rac_11_pods_of_a_dispatched_workload_on_the_hub_are_the_alarm() -> None:
    (finding,) = diagnose(hub(bound_pods=(("team-a", "train-x1", ("Job/train",)),))(healthy()))
    assert (finding.code, finding.severity) == (Code.HUB_RUNS_PODS, Severity.ERROR)
    assert "dispatched to onprem" in finding.seen


@pytest.mark.parametrize("how", ["frameworks", "external_frameworks"])
def test_fr_rac_11_a_kind_whose_controller_ignores_managed_by_is_found_before_it_runs_twice(how: str) -> None:
    kind = "trainer.kubeflow.org/trainjob" if how == "frameworks" else "TrainJob.v1alpha1.trainer.kubeflow.org"
    found = diagnose(config(**{how: (kind,)})(healthy()))
    (finding,) = [each for each in found if each.code is Code.MANAGED_BY_IGNORED]
    assert finding.severity is Severity.WARNING
    assert finding.where.text() == f"hub: framework {kind}"
    assert codes(config(frameworks=("batch/job", "pod", "statefulset"))(healthy())) == set(), "gated, or obeys"


def test_fr_aut_02_an_insecure_kubeconfig_is_an_error_for_both_holders() -> None:
    faults = ((KubeconfigFault.INSECURE, "insecure-skip-tls-verify is true"),)
    for holder in Holder:
        (finding,) = diagnose(kubeconfig(faults=faults, holder=holder)(healthy()))
        assert (finding.code, finding.severity) == (Code.KUBECONFIG_INSECURE, Severity.ERROR)


def test_a_finished_job_needs_no_manager_any_more() -> None:
    assert codes(job(managed_by="", finished=True)(healthy())) == set()


def test_flavors_that_share_nodes_but_no_resource_promise_nothing_twice() -> None:
    apart = (*quota(8), *(replace(each, resource="example.com/fpga") for each in quota(8, flavor="also")[:1]))
    facts = worker(flavors=TWIN_FLAVOR, queues={"training": queue("training", apart)})(healthy())
    assert Code.FLAVORS_OVERLAP not in codes(facts)
