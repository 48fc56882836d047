"""What a look at a hub, its workers and a blueprint found: the doctor's input, frozen, without any judgement.

Whatever could not be read is None (and named in `ClusterFacts.unread`), never empty: "there are no jobs" and "the jobs
cannot be seen" lead to different findings. Views that decisions use are used here too, so that both mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from dispatcher.core.ghosts import GhostKind
from dispatcher.core.policy import CatalogStanding, Policy
from dispatcher.core.replicas import Presence
from dispatcher.core.selectors import Labels
from dispatcher.core.snapshot import ClusterQueueView, CohortView, FlavorView, LocalQueueView, NodeView
from dispatcher.core.workload import Requirement

HUB = "hub"


@dataclass(frozen=True, slots=True)
class Unread:
    """A look that failed: what was asked for, and what the apiserver (or the network) said."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, order=True)
class Verb:
    """One thing that an account must be allowed to do; namespace and name empty = all of them."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def text(self) -> str:
        where = f" {self.name}" if self.name else ""
        where += f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{where}"


WRITE_WORKLOADS = Verb("patch", "kueue.x-k8s.io", "workloads")
"""What deploy/interactive grants on the hub, and deploy/worker-stop on a worker."""
READ_TOPOLOGIES = tuple(Verb(verb, "kueue.x-k8s.io", "topologies") for verb in ("list", "watch"))
"""What deploy/worker grants since topologies are read; a daemon does without (ADR 27)."""


@dataclass(frozen=True, slots=True)
class Skew:
    """The server's clock less ours in milliseconds, as the interval that one answer's Date header leaves open."""

    low_ms: int
    high_ms: int


@dataclass(frozen=True, slots=True)
class KueueVersion:
    """`exact` from the manager's image, as (0, 19, 2); `floor` from what the API serves."""

    exact: tuple[int, int, int] | None = None
    floor: tuple[int, int, int] | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class KueueConfig:
    """Kueue's Configuration as its ConfigMap holds it. Absent settings are None: Kueue's defaults then hold."""

    where: str
    dispatcher: str | None = None
    frameworks: tuple[str, ...] | None = None
    external_frameworks: tuple[str, ...] = ()
    """As written: kind.version.group."""
    gc_interval_s: int | None = None
    worker_lost_timeout_s: int | None = None
    origin: str | None = None
    gates: tuple[tuple[str, bool], ...] = ()
    """From the file and from the manager's --feature-gates."""
    accounting_changes: tuple[str, ...] = ()
    """Settings below `resources` that make quota differ from what pods ask for."""
    problem: str = ""
    """Why the file could not be understood; everything else is then unknown."""

    def gate(self, name: str) -> bool | None:
        return dict(self.gates).get(name)


class CheckOn(StrEnum):
    """Kinds of admission checks by their controller."""

    MULTIKUEUE = "kueue.x-k8s.io/multikueue"
    PROVISIONING = "kueue.x-k8s.io/provisioning-request"


@dataclass(frozen=True, slots=True)
class Active:
    """A condition `Active`; `known` is False while no controller has ever set it."""

    holds: bool
    known: bool = True
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class QueueChecks:
    """What rules a ClusterQueue besides its quota: checks with the flavors they are limited to, its condition, and
    which namespaces it takes work of."""

    active: Active
    checks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    selector: tuple[Requirement, ...] | None = ()
    """None: of no namespace at all."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What hub and workers have in common. `name` is "hub" or the MultiKueueCluster's. `error`: unreachable, why."""

    name: str
    error: str | None = None
    kubernetes: str | None = None
    identity: str | None = None
    """UID of namespace kube-system."""
    kueue_served: bool | None = None
    """Whether kueue.x-k8s.io/v1beta2 is served."""
    kueue: KueueVersion = KueueVersion()
    config: KueueConfig | None = None
    skew: Skew | None = None
    denied: tuple[Verb, ...] | None = None
    not_granted: tuple[Verb, ...] = ()
    """What the account lacks of what a daemon can do without; empty also where that was not answered."""
    account: str = ""
    namespaces: Mapping[str, Labels] | None = None
    """With their labels. The hub's are not read."""
    queues: Mapping[str, ClusterQueueView] | None = None
    queue_checks: Mapping[str, QueueChecks] = field(default_factory=dict)
    cohorts: Mapping[str, CohortView] | None = None
    local_queues: Mapping[tuple[str, str], LocalQueueView] | None = None
    flavors: Mapping[str, FlavorView] | None = None
    nodes: tuple[NodeView, ...] | None = None
    kinds: frozenset[tuple[str, str]] | None = None
    """(API group, kind in lower case) that the cluster serves, of the groups that were asked for."""
    unread: tuple[Unread, ...] = ()

    @property
    def reachable(self) -> bool:
        return self.error is None


# --- the hub -----------------------------------------------------------------------------------------------------


class PolicyFault(StrEnum):
    """Why Kueue's clearing policy is not what upstream ships."""

    API_NOT_SERVED = "api-not-served"
    MISSING = "missing"
    RULES = "rules"
    MUTATION = "mutation"
    CONDITIONS = "conditions"
    FAILURE_POLICY = "failure-policy"
    PARAMETERS = "parameters"
    NOT_BOUND = "not-bound"
    BINDING_NARROWED = "binding-narrowed"
    OLD_API_SERVED = "old-api-served"


@dataclass(frozen=True, slots=True)
class AdmissionCheckFacts:
    name: str
    controller: str
    active: Active
    config: str | None = None
    """Name of the MultiKueueConfig, when `parameters` names one."""


class Source(StrEnum):
    SECRET = "Secret"
    PATH = "Path"
    PROFILE = "ClusterProfile"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MultiKueueClusterFacts:
    name: str
    active: Active
    source: Source
    location: str = ""
    deleting: bool = False


class KubeconfigFault(StrEnum):
    """What is wrong with a kubeconfig that lies in a Secret."""

    NO_SECRET = "no-secret"
    NO_KEY = "no-key"
    MALFORMED = "malformed"
    INSECURE = "insecure"
    NOT_HTTPS = "not-https"
    BAD_HOST = "bad-host"
    CA_FILE = "ca-file"
    NO_CA = "no-ca"
    CREDENTIAL_FILE = "credential-file"
    EXEC = "exec"
    AUTH_PROVIDER = "auth-provider"
    BASIC_AUTH = "basic-auth"
    NO_CREDENTIAL = "no-credential"


class Holder(StrEnum):
    """Whose access a kubeconfig is."""

    MULTIKUEUE = "MultiKueue"
    ENTREPOT = "Entrepot"


@dataclass(frozen=True, slots=True)
class KubeconfigFacts:
    """A kubeconfig in a Secret of the hub (or a file): what is wrong with it and when its parts end. Never contents."""

    cluster: str
    holder: Holder
    where: str
    """namespace/name of the Secret, or a path."""
    key: str = "kubeconfig"
    faults: tuple[tuple[KubeconfigFault, str], ...] = ()
    """With the detail that a person needs to find it: a key of the file, a host."""
    token_ends: datetime | None = None
    certificate_ends: datetime | None = None
    ca_ends: datetime | None = None
    denied: tuple[Verb, ...] = ()
    """What its account lacks on the worker; empty also when that could not be asked."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A Job or JobSet with a queue label. `ttl_s`: ttlSecondsAfterFinished."""

    kind: str
    namespace: str
    name: str
    queue: str
    managed_by: str = ""
    ttl_s: int | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A job object or local Workload's owner on a worker, without a MultiKueue origin."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """A Workload on a worker with a MultiKueue origin."""

    namespace: str
    name: str
    origin: str
    created: datetime | None = None


@dataclass(frozen=True, slots=True)
class HubWorkloadFacts:
    namespace: str
    name: str
    owner_kind: str = ""
    owner_name: str = ""
    cluster: str | None = None
    """status.clusterName."""


@dataclass(frozen=True, slots=True)
class DataKeyFacts:
    """A Secret of the hub that data.yaml names, and what is wrong with it. Never contents.

    `of`: "catalog" or the store's name; `where`: namespace/name. `fault` empty: it is there, with its key.
    """

    of: str
    where: str
    key: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class HubFacts:
    """The hub. Parts that could not be read are None."""

    cluster: ClusterFacts
    policy_faults: tuple[tuple[PolicyFault, str], ...] | None = None
    checks: Mapping[str, AdmissionCheckFacts] | None = None
    configs: Mapping[str, tuple[str, ...]] | None = None
    clusters: Mapping[str, MultiKueueClusterFacts] | None = None
    kubeconfigs: tuple[KubeconfigFacts, ...] = ()
    data_keys: tuple[DataKeyFacts, ...] = ()
    """Those that could be looked at."""
    jobs: tuple[JobFacts, ...] | None = None
    workloads: tuple[HubWorkloadFacts, ...] | None = None
    bound_pods: tuple[tuple[str, str, tuple[str, ...]], ...] | None = None
    """Pods that sit on nodes of the hub: (namespace, name, "Kind/name" of every job that they may belong to)."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    cluster: ClusterFacts
    copies: tuple[CopyFacts, ...] | None = None
    foreign_jobs: tuple[RemoteJob, ...] | None = None


# --- the blueprint -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LintFact:
    """A finding of the blueprint's own check, with its place."""

    file: str
    line: int
    column: int
    error: bool
    rule: str
    fix: str


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    name: str
    namespace: str
    local_queue: str


@dataclass(frozen=True, slots=True)
class BlueprintFacts:
    """`policy` is None when the blueprint is not valid. `bursting`: (cluster, flavor) that node pools add to."""

    folder: str
    policy: Policy | None
    lint: tuple[LintFact, ...] = ()
    queues: tuple[PlannedQueue, ...] = ()
    bursting: frozenset[tuple[str, str]] = frozenset()
    signed: bool = True
    """Whether a signature lies beside it. Whether it is good, the daemon's keys say."""


# --- the daemon --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """What the daemon says of the catalog's endpoint. `age_s`: since it last gave a good answer; None: never."""

    standing: CatalogStanding
    age_s: int | None = None
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What the daemon saw of one replica in a store that is looked into. `age_s` None: it never looked."""

    data_set: str
    store: str
    presence: Presence
    age_s: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class GhostFacts:
    """Room that is charged on a cluster for what is not there (core/ghosts.py), in the daemon's words."""

    cluster: str
    kind: GhostKind
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """What the daemon at `server` says of data and of ghosts. `leads` False: it stands by, and others look; None: it is
    not known."""

    server: str
    error: str = ""
    leads: bool | None = None
    catalog: CatalogFacts | None = None
    replicas: tuple[ReplicaFacts, ...] = ()
    ghosts: tuple[GhostFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """Everything, as of `seen_at`. Workers in order of name."""

    seen_at: datetime
    hub: HubFacts
    workers: tuple[WorkerFacts, ...] = ()
    blueprint: BlueprintFacts | None = None
    daemon: DaemonFacts | None = None
    """None: nobody said where it is."""
