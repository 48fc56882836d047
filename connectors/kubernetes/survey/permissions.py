"""What each account must be allowed to do (kueue-contract section 8; deploy/ grants the daemon's part)."""

from __future__ import annotations

from collections.abc import Iterable

from connectors.kubernetes.preflight import NEEDED
from dispatcher.core.doctor.facts import READ_TOPOLOGIES, WRITE_WORKLOADS, Verb
from dispatcher.core.policy import Credentials

KUEUE = "kueue.x-k8s.io"
_READ = ("list", "watch")
_NAMESPACE = "entrepot-system"
_LEASE = ("coordination.k8s.io", "leases", _NAMESPACE)

DAEMON_ON_WORKER: tuple[Verb, ...] = tuple(
    Verb(verb, group, resource)
    for group, resources in (
        (KUEUE, ("clusterqueues", "localqueues", "cohorts", "resourceflavors", "workloads")),
        ("", ("nodes", "pods", "namespaces")),
    )
    for resource in resources
    for verb in _READ
)
"""What the daemon must read of a worker."""
WISHED_ON_WORKER = (WRITE_WORKLOADS, *READ_TOPOLOGIES)
"""What it can do without there."""


def daemon_on_hub(credentials: Iterable[Credentials]) -> tuple[Verb, ...]:
    """What the daemon does on the hub: what its start-up asks for, the Lease of its replicas, each worker's Secret."""
    return (
        *(Verb(needed.verb, needed.group, needed.rule_resource, name=needed.name) for needed in NEEDED),
        Verb("create", *_LEASE),
        *(Verb(verb, *_LEASE, name="entrepot") for verb in ("get", "update")),
        *secrets_of(credentials),
    )


def secrets_of(credentials: Iterable[Credentials]) -> tuple[Verb, ...]:
    """Reading those that lie in Secrets, one by one by name."""
    return tuple(
        Verb("get", "", "secrets", each.secret_namespace or "", each.secret_name)
        for each in credentials
        if each.secret_name is not None
    )


def multikueue_on_worker(kinds: Iterable[tuple[str, str]]) -> tuple[Verb, ...]:
    """What Kueue's own account does on a worker. `kinds`: (API group, kind in lower case) that the hub enables."""
    jobs = [
        Verb(verb, group, f"{kind}s") for group, kind in kinds for verb in ("create", "delete", "get", "list", "watch")
    ]
    workloads = [
        Verb(verb, KUEUE, "workloads") for verb in ("create", "delete", "get", "list", "watch", "update", "patch")
    ]
    return (*jobs, *workloads, Verb("get", KUEUE, "workloads/status"), Verb("patch", KUEUE, "workloads/status"))
