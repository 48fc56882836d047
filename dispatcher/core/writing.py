"""How a nomination is written so that Kueue can clear it again, and which hub allows which way.

The rule behind it (kueue-contract section 3.2, FR-NOM-01): Kueue applies Workload status as field manager
`kueue-admission` and clears a field by leaving it out, which removes nothing that another manager owns. A nomination
that cannot be cleared lets a worker run the job while the hub never latches.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dispatcher.core.errors import Fatal


class WriteMode(StrEnum):
    """The three ways that work, best first."""

    CLEARING_POLICY = "policy"
    """Merge patch of one field under our own manager; the hub's admission policy empties the list."""
    MERGE_PATCH_GATE = "merge-patch"
    """The same patch; Kueue itself writes merge patches (gate WorkloadRequestUseMergePatch) and sends null."""
    FULL_REPLICA = "replica"
    """Apply as `kueue-admission` with everything that this manager owns: one read more for each nomination."""


class UnsafeMode(Fatal):
    """The mode that was asked for would let Kueue get stuck on this hub."""


class Known(StrEnum):
    """What is known of a thing that may be in force on a hub."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HubWriting:
    """What looking and probing found out. `policy_problem` says why the policy is not in force, "" when it is."""

    policy: Known
    gate: Known
    policy_problem: str = ""
    gate_problem: str = ""


POLICY_FIX = (
    "apply Kueue's config/components/map/manifests.yaml on the hub (release artifact workload-map.yaml, Helm value "
    "enableMutatingAdmissionPolicy=true); it needs Kubernetes 1.36, or 1.35 with the manifest as "
    "admissionregistration.k8s.io/v1beta1 and the feature gate MutatingAdmissionPolicy; or start with "
    "--write-mode=auto, which writes full replicas where there is no policy"
)
GATE_FIX = (
    "start the hub's Kueue with the feature gate WorkloadRequestUseMergePatch=true, and let us see it: apply "
    "deploy/any-hub, so that we may make and delete a Workload of no queue in our own namespace; or start with "
    "--write-mode=auto, which writes full replicas where the gate is not proven"
)


def choose_mode(found: HubWriting, wanted: WriteMode | None) -> WriteMode:
    """The best mode that this hub is known to allow, or the wanted one when it does.

    A plain patch is never written on a guess: what is unknown counts as absent, and the full replica works on every
    hub from Kueue 0.17.0 on.

    Raises:
        UnsafeMode: the wanted mode would let Kueue get stuck here; `fix` says what to change.
    """
    if wanted is WriteMode.CLEARING_POLICY and found.policy is not Known.YES:
        why = found.policy_problem or "whether the policy is in force cannot be seen"
        raise UnsafeMode(_refusal(wanted, why), POLICY_FIX)
    if wanted is WriteMode.MERGE_PATCH_GATE and found.gate is not Known.YES:
        why = found.gate_problem or "whether the gate is on cannot be seen"
        raise UnsafeMode(_refusal(wanted, why), GATE_FIX)
    if wanted is not None:
        return wanted
    if found.policy is Known.YES:
        return WriteMode.CLEARING_POLICY
    if found.gate is Known.YES:
        return WriteMode.MERGE_PATCH_GATE
    return WriteMode.FULL_REPLICA


def _refusal(wanted: WriteMode, why: str) -> str:
    return f"write mode {wanted} is not safe on this hub, Kueue could never clear a nomination: {why}"
