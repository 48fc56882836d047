"""Versions: what is too old, what is known to be bad and why, what nobody has tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dispatcher.core.doctor.facts import HUB, ClusterFacts, FleetFacts
from dispatcher.core.doctor.findings import Code, Finding, Where, found
from dispatcher.core.doctor.reach import dispatched_queues
from dispatcher.core.doctor.versions import (
    CHECKS_FIXED,
    FOREIGN_FIXED,
    KNOWN_BUGS,
    OLDEST_KUBERNETES,
    OLDEST_KUEUE,
    TESTED_KUBERNETES,
    TESTED_KUEUE,
    Version,
    parse_version,
    version_text,
)


def check_versions(facts: FleetFacts) -> Iterator[Finding]:
    hub = facts.hub.cluster
    if hub.reachable:
        yield from _kubernetes(hub)
        yield from _kueue(hub)
        exact = hub.kueue.exact
        if exact is not None and exact >= OLDEST_KUEUE:
            yield from _known_bugs(facts, exact)
    for worker in facts.workers:
        if worker.cluster.reachable:
            yield from _kueue(worker.cluster)


def _kubernetes(hub: ClusterFacts) -> Iterator[Finding]:
    version = parse_version(hub.kubernetes or "")
    if version is None:
        return
    where = Where(HUB, "Kubernetes", hub.kubernetes or "")
    seen = f"the hub runs Kubernetes {version_text(version)}"
    if version < OLDEST_KUBERNETES:
        yield found(Code.KUBERNETES_TOO_OLD, where, seen)
    elif version[:2] != TESTED_KUBERNETES[:2]:
        yield found(Code.KUBERNETES_UNTESTED, where, f"{seen}; 1.36 is tested")


def _kueue(cluster: ClusterFacts) -> Iterator[Finding]:
    where = Where(cluster.name, "Kueue", cluster.kueue.text)
    if cluster.kueue_served is False:
        yield found(Code.KUEUE_NOT_SERVED, where, "kueue.x-k8s.io/v1beta2 is not served")
        return
    exact = cluster.kueue.exact
    if exact is None:
        if cluster.name == HUB:
            floor = cluster.kueue.floor
            least = f"; its API is that of {version_text(floor)} or later" if floor is not None else ""
            yield found(Code.KUEUE_VERSION_UNKNOWN, where, f"the manager's image is not seen{least}")
    elif exact < OLDEST_KUEUE:
        yield found(Code.KUEUE_TOO_OLD, where, f"Kueue {version_text(exact)} runs there")
    elif exact[:2] > TESTED_KUEUE[:2]:
        yield found(Code.KUEUE_UNTESTED, where, f"Kueue {version_text(exact)} runs there; 0.19.2 is tested")


def _known_bugs(facts: FleetFacts, version: Version) -> Iterator[Finding]:
    """Bugs of the hub's Kueue: MultiKueue's controller runs there."""
    where = Where(HUB, "Kueue", facts.hub.cluster.kueue.text)
    runs = f"Kueue {version_text(version)}"
    if version < CHECKS_FIXED:
        others = _queues_with_other_checks(facts)
        seen = f"{runs} does not wait for other checks; queues with others: {', '.join(others) or 'none now'}"
        yield found(Code.KUEUE_SKIPS_CHECKS, where, seen)
    if version < FOREIGN_FIXED:
        yield found(Code.KUEUE_DELETES_FOREIGN, where, f"{runs} deletes foreign jobs of the same name on workers")
    for bug in KNOWN_BUGS:
        if bug.concerns(version):
            fix = f"upgrade the hub's Kueue to {version_text(bug.fix_for(version))} or later"
            finding = found(Code.KUEUE_KNOWN_BUG, where, f"{runs} has {bug.key}: {bug.what}", fix)
            yield replace(finding, severity=bug.severity, why=bug.what)


def _queues_with_other_checks(facts: FleetFacts) -> list[str]:
    checks = facts.hub.cluster.queue_checks
    return [name for name in dispatched_queues(facts.hub) if len(checks[name].checks) > 1]
