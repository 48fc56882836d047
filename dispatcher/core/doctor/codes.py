"""Every finding that the doctor can make, each with its severity, why it matters and where the contract says so.

docs/doctor.md holds the same table; a test compares them. A code is stable: scripts and alerts may rely on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """ERROR: work is lost, stuck or wrongly placed. WARNING: it will be, in some case. NOTE: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class Group(StrEnum):
    """Headings under which findings are shown, in this order."""

    ACCESS = "Access"
    VERSIONS = "Versions"
    HUB = "Hub configuration"
    MULTIKUEUE = "MultiKueue"
    KUBECONFIGS = "Kubeconfigs"
    QUEUES = "Queues and quota"
    NODES = "Flavors and nodes"
    JOBS = "Jobs"
    BLUEPRINT = "Blueprint"
    DATA = "Data"


class Code(StrEnum):
    UNREACHABLE = "unreachable"
    NOT_LOOKED = "not-looked"
    RBAC_MISSING = "rbac-missing"
    TOPOLOGIES_NOT_READ = "topologies-not-read"
    IDLE_NOT_ALLOWED = "idle-not-allowed"
    STOP_NOT_ALLOWED = "stop-not-allowed"
    CLOCK_SKEW = "clock-skew"
    CLOCKS_DIFFER = "clocks-differ"
    SAME_CLUSTER_TWICE = "same-cluster-twice"
    KUBERNETES_TOO_OLD = "kubernetes-too-old"
    KUBERNETES_UNTESTED = "kubernetes-untested"
    KUEUE_NOT_SERVED = "kueue-not-served"
    KUEUE_TOO_OLD = "kueue-too-old"
    KUEUE_KNOWN_BUG = "kueue-known-bug"
    KUEUE_SKIPS_CHECKS = "kueue-skips-checks"
    KUEUE_DELETES_FOREIGN = "kueue-deletes-foreign"
    KUEUE_UNTESTED = "kueue-untested"
    KUEUE_VERSION_UNKNOWN = "kueue-version-unknown"
    CONFIG_UNREADABLE = "config-unreadable"
    DISPATCHER_BUILT_IN = "dispatcher-built-in"
    DISPATCHER_OTHER = "dispatcher-other"
    POLICY_MISSING = "policy-missing"
    POLICY_EDITED = "policy-edited"
    POLICY_NOT_BOUND = "policy-not-bound"
    POLICY_OLD_API = "policy-old-api"
    MERGE_PATCH_GATE = "merge-patch-gate"
    GATE = "gate"
    GC_OFF = "gc-off"
    LOST_TIMEOUT_SHORT = "lost-timeout-short"
    MOVE_TOO_LATE = "move-too-late"
    MOVE_UNKNOWN = "move-unknown"
    ACCOUNTING_CHANGED = "accounting-changed"
    FRAMEWORK_NOT_ON_WORKER = "framework-not-on-worker"
    MANAGED_BY_IGNORED = "managed-by-ignored"
    NO_MULTIKUEUE_CHECK = "no-multikueue-check"
    CHECK_INACTIVE = "check-inactive"
    CONFIG_MISSING = "config-missing"
    CONFIG_UNKNOWN_CLUSTER = "config-unknown-cluster"
    CONFIG_TOO_MANY = "config-too-many"
    CONFIG_DUPLICATE = "config-duplicate"
    CLUSTER_UNUSED = "cluster-unused"
    CLUSTER_INACTIVE = "cluster-inactive"
    CLUSTER_DELETING = "cluster-deleting"
    CLUSTER_BY_PATH = "cluster-by-path"
    ORIGIN_SHARED = "origin-shared"
    SECRET_MISSING = "secret-missing"
    SECRET_NO_KEY = "secret-no-key"
    KUBECONFIG_INSECURE = "kubeconfig-insecure"
    KUBECONFIG_REFUSED = "kubeconfig-refused"
    KUBECONFIG_BAD_HOST = "kubeconfig-bad-host"
    KUBECONFIG_MALFORMED = "kubeconfig-malformed"
    KUBECONFIG_EXPIRED = "kubeconfig-expired"
    KUBECONFIG_EXPIRING = "kubeconfig-expiring"
    KUBECONFIG_RBAC = "kubeconfig-rbac"
    TWO_MULTIKUEUE_CHECKS = "two-multikueue-checks"
    CHECK_PER_FLAVOR = "check-per-flavor"
    CHECK_WITH_PROVISIONING = "check-with-provisioning"
    TOO_MANY_CHECKS = "too-many-checks"
    CHECK_NOT_FOUND = "check-not-found"
    HUB_QUEUE_INACTIVE = "hub-queue-inactive"
    HUB_QUEUE_HELD = "hub-queue-held"
    HUB_QUOTA_SMALL = "hub-quota-small"
    HUB_QUOTA_UNCOVERED = "hub-quota-uncovered"
    NAMESPACE_MISSING = "namespace-missing"
    LOCAL_QUEUE_MISSING = "local-queue-missing"
    NAMESPACE_NOT_SELECTED = "namespace-not-selected"
    WORKER_QUEUE_MISSING = "worker-queue-missing"
    WORKER_QUEUE_INACTIVE = "worker-queue-inactive"
    WORKER_QUEUE_HELD = "worker-queue-held"
    FLAVOR_MISSING = "flavor-missing"
    FLAVOR_WITHOUT_NODES = "flavor-without-nodes"
    FLAVORS_OVERLAP = "flavors-overlap"
    GPUS_WITHOUT_FLAVOR = "gpus-without-flavor"
    GPU_LABEL_UNKNOWN = "gpu-label-unknown"
    TTL_SHORT = "ttl-short"
    TTL_RISKY = "ttl-risky"
    NOT_MANAGED = "not-managed"
    HUB_RUNS_PODS = "hub-runs-pods"
    NAME_TAKEN = "name-taken"
    BLUEPRINT_ERROR = "blueprint-error"
    BLUEPRINT_WARNING = "blueprint-warning"
    RULES_UNSIGNED = "rules-unsigned"
    CLUSTER_NOT_IN_BLUEPRINT = "cluster-not-in-blueprint"
    CLUSTER_NOT_ON_HUB = "cluster-not-on-hub"
    QUEUE_NOT_ON_HUB = "queue-not-on-hub"
    QUEUE_NOT_DISPATCHED = "queue-not-dispatched"
    QUEUE_NOT_ON_WORKER = "queue-not-on-worker"
    QUEUE_NOT_IN_BLUEPRINT = "queue-not-in-blueprint"
    FLAVOR_NOT_ON_WORKER = "flavor-not-on-worker"
    NODES_DIFFER = "nodes-differ"
    GHOST = "ghost"
    DATA_NOT_ASKED = "data-not-asked"
    DATA_KEY_MISSING = "data-key-missing"
    DATA_KEY_DENIED = "data-key-denied"
    CATALOG_FAILS = "catalog-fails"
    CATALOG_OLD = "catalog-old"
    STORE_UNSEEN = "store-unseen"
    REPLICA_NOT_LOOKED = "replica-not-looked"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is always true of a code. `section` is one of kueue-contract, or the id of a field report."""

    group: Group
    severity: Severity
    title: str
    why: str
    section: str
    fix: str
