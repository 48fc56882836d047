"""Versions known to be bad for dispatch, and why (kueue-contract sections 3.2, 9 and 14). Data, and how to compare.

A bug holds from `since` until the fix of the same minor version; `fixed` lists one fix a minor that got one. A minor
that is newer than all fixes has it, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dispatcher.core.doctor.codes import Severity

Version = tuple[int, int, int]

OLDEST_KUEUE: Version = (0, 17, 0)
OLDEST_GOOD_KUEUE: Version = (0, 17, 8)
TESTED_KUEUE: Version = (0, 19, 2)
OLDEST_KUBERNETES: Version = (1, 35, 0)
TESTED_KUBERNETES: Version = (1, 36, 3)

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> Version | None:
    """The first three numbers of "v1.36.3", "v0.19.2-gke.4" or "1.36+"; None when there are not at least two."""
    match = _VERSION.match(text.strip())
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def version_text(version: Version) -> str:
    return ".".join(str(part) for part in version)


@dataclass(frozen=True, slots=True)
class KnownBug:
    """`key` is the upstream issue; `what` says what a user of dispatch suffers."""

    key: str
    since: Version
    fixed: tuple[Version, ...]
    what: str
    severity: Severity = Severity.WARNING

    def concerns(self, version: Version) -> bool:
        """Whether that version has it. A minor between two fixed ones that got no fix of its own counts as bad."""
        if version < self.since:
            return False
        same_minor = [fix for fix in self.fixed if fix[:2] == version[:2]]
        if same_minor:
            return version < min(same_minor)
        return version < max(self.fixed)

    def fix_for(self, version: Version) -> Version:
        """The nearest version to upgrade to."""
        return min(fix for fix in self.fixed if fix > version)


KNOWN_BUGS: tuple[KnownBug, ...] = (
    KnownBug(
        "#12999",
        (0, 17, 0),
        ((0, 17, 8), (0, 18, 4)),
        "a short break of the watch to a worker evicts work that has run for long: the loss is measured from its "
        "admission, not from the break (FR-RAC-04)",
        Severity.ERROR,
    ),
    KnownBug(
        "#13047",
        (0, 17, 0),
        ((0, 17, 8),),
        "a copy that ends as out of sync strands the hub's job instead of being tried again (FR-RAC-06)",
    ),
    KnownBug(
        "#13188",
        (0, 17, 0),
        ((0, 17, 8),),
        "workloads stay stuck when a cluster becomes unavailable by a change of its configuration",
    ),
    KnownBug(
        "#11515",
        (0, 17, 0),
        ((0, 17, 7),),
        "copies on a worker that was away stay there, with their quota, after it is back",
    ),
    KnownBug("#12612", (0, 17, 0), ((0, 17, 7),), "a data race at reconnection makes Kueue's manager crash in a loop"),
    KnownBug(
        "#11559",
        (0, 17, 0),
        ((0, 17, 4),),
        "with all workers away, workerLostTimeout is not applied (FR-RAC-08), and one hung worker delays the others",
    ),
    KnownBug(
        "#11378",
        (0, 17, 0),
        ((0, 17, 4),),
        "a name that is not connected is ignored in silence; a stale cache makes copies that the webhook then refuses "
        "for ever (FR-RAC-01)",
    ),
    KnownBug(
        "#10340",
        (0, 17, 0),
        ((0, 17, 1),),
        "the hub is not brought into step with what a worker has evicted: its job may go on counting pods that are "
        "gone, and keep its quota (docs/any-hub.md, stuck)",
    ),
    KnownBug(
        "#14550",
        (0, 17, 0),
        ((0, 19, 2),),
        "a watch to a worker may hang while it is set up, and watchers leak (#13829): the worker stays inactive",
        Severity.NOTE,
    ),
)

CHECKS_FIXED: Version = (0, 17, 1)
"""From here on nothing is dispatched before all other checks are Ready (#9622, #10398)."""
FOREIGN_FIXED: Version = (0, 17, 6)
"""From here on a foreign job of the same name is left alone (#11877, #12383)."""


@dataclass(frozen=True, slots=True)
class GateRule:
    """A feature gate in a position that dispatch must know of."""

    name: str
    value: bool
    severity: Severity
    why: str


GATES: tuple[GateRule, ...] = (
    GateRule("MultiKueue", False, Severity.ERROR, "nothing is dispatched at all"),
    GateRule(
        "MultiKueueWaitForWorkloadAdmitted",
        False,
        Severity.WARNING,
        "the hub takes the first worker that reserves quota, although its checks (a purchase of nodes) may still fail",
    ),
    GateRule(
        "MultiKueueRedoAdmissionOnEvictionInWorker",
        False,
        Severity.WARNING,
        "work that a worker evicts stays bound to that worker (FR-NOM-03)",
    ),
    GateRule(
        "MultiKueueAllowInsecureKubeconfigs",
        True,
        Severity.ERROR,
        "kubeconfigs that verify nobody are accepted; the gate is locked off in 0.19",
    ),
    GateRule(
        "MultiKueueBatchJobWithManagedBy",
        False,
        Severity.ERROR,
        "the hub would run Jobs itself beside the worker; the gate is locked on since 0.17",
    ),
    GateRule(
        "ConcurrentAdmission",
        True,
        Severity.WARNING,
        "it is not valid on a hub ClusterQueue with a MultiKueue check (#12470)",
    ),
    GateRule(
        "MultiKueueOrchestratedPreemption",
        True,
        Severity.NOTE,
        "preemption on workers waits for gates that are opened one at a time, five minutes apart",
    ),
    GateRule(
        "MultiKueueManagerQuotaAutomation",
        True,
        Severity.NOTE,
        "hub quotas become the plain sum of the workers': waiting work then blocks more urgent work (FR-NOM-10)",
    ),
    GateRule(
        "ElasticJobsViaWorkloadSlices",
        True,
        Severity.NOTE,
        "slices of a placed job are pinned to its cluster; Entrepot leaves them alone (FR-NOM-11)",
    ),
)
"""The gate WorkloadRequestUseMergePatch has a finding of its own: it stands in for the clearing policy."""
