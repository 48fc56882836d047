"""The doctor: facts of a fleet in, findings with their fixes out. Pure, like all of the core."""

from __future__ import annotations

from dispatcher.core.doctor.catalog import CATALOG
from dispatcher.core.doctor.check_access import check_access
from dispatcher.core.doctor.check_blueprint import check_blueprint
from dispatcher.core.doctor.check_config import check_config
from dispatcher.core.doctor.check_data import check_data
from dispatcher.core.doctor.check_ghosts import check_ghosts
from dispatcher.core.doctor.check_jobs import check_jobs
from dispatcher.core.doctor.check_kubeconfigs import check_kubeconfigs
from dispatcher.core.doctor.check_multikueue import check_multikueue
from dispatcher.core.doctor.check_nodes import check_nodes
from dispatcher.core.doctor.check_queues import check_queues
from dispatcher.core.doctor.check_versions import check_versions
from dispatcher.core.doctor.check_wishes import check_wishes
from dispatcher.core.doctor.codes import Code, Entry, Group, Severity
from dispatcher.core.doctor.facts import FleetFacts
from dispatcher.core.doctor.findings import Finding, Where, in_order

__all__ = ["CATALOG", "Code", "Entry", "Finding", "Group", "Severity", "Where", "diagnose"]

_CHECKS = (
    check_access,
    check_versions,
    check_config,
    check_wishes,
    check_multikueue,
    check_kubeconfigs,
    check_queues,
    check_nodes,
    check_ghosts,
    check_jobs,
    check_blueprint,
    check_data,
)


def diagnose(facts: FleetFacts) -> tuple[Finding, ...]:
    """Everything that is set up wrong, by group and the worst first; the same facts give the same findings.

    Facts that are None were not seen: nothing is concluded from them.
    """
    return in_order([finding for check in _CHECKS for finding in check(facts)])
