"""Room that is charged for what is not there. Only a daemon knows for how long that has been so (core/ghosts.py)."""

from __future__ import annotations

from collections.abc import Iterator

from dispatcher.core.doctor.facts import FleetFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.ghosts import GhostKind

_KINDS = {GhostKind.NO_PODS: "Workload", GhostKind.NODE_GONE: "Node", GhostKind.NO_COPY: "Workload"}
_FIXES = {
    GhostKind.NO_PODS: "look at the job and at the events of its pods there; delete the Workload where the job is gone",
    GhostKind.NODE_GONE: "delete the pods (kubectl delete pod --force): no kubelet will end them",
    GhostKind.NO_COPY: "look at the log of Kueue on the hub for this cluster: it makes the copies",
}


def check_ghosts(facts: FleetFacts) -> Iterator[Finding]:
    for ghost in facts.daemon.ghosts if facts.daemon is not None else ():
        namespace, _, name = ghost.name.rpartition("/")
        where = Where(ghost.cluster, _KINDS[ghost.kind], name, namespace)
        yield found(Code.GHOST, where, ghost.text, _FIXES[ghost.kind])
