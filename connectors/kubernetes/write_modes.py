"""Finds out which way of writing a nomination a hub allows: by looking, and where that does not tell, by a safe probe.

Looking: the admission policy that clears nominations, and its binding, are objects. The gate
WorkloadRequestUseMergePatch is not: it is a flag of a process whose configuration we may not read. But how Kueue writes
shows in managedFields, so the probe makes a Workload of no queue in our own namespace, which Kueue answers at once with
"LocalQueue doesn't exist": by apply as `kueue-admission` where the gate is off, by a plain update where it is on
(seen on v0.17.0 and v0.19.2, docs/any-hub.md). It asks for no quota, can never be admitted and is deleted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connectors.kubernetes.client import MERGE_PATCH, ApiClient, Call
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw, child, children, text, texts
from connectors.kubernetes.nomination import FIELD_MANAGER, KUEUE, KUEUE_MANAGER
from dispatcher.core.errors import Conflict, EntrepotError
from dispatcher.core.ports import Clock
from dispatcher.core.writing import HubWriting, Known, WriteMode, choose_mode
from dispatcher.logs import get_logger

POLICY = "clear-nominated-cluster-names"
PROBE_NAMESPACE = "entrepot-system"
PROBE = "entrepot-probe"
ANSWER_S = 5.0
"""Kueue answers the probe in 0.1 to 0.3 s; one that does not in this time is busy or away, and nothing is known."""
_LOOK_S = 0.1
_KUEUE = "kueue.x-k8s.io"


async def detect(client: ApiClient, clock: Clock, wanted: WriteMode | None) -> WriteMode:
    """The mode to write in: the best one of this hub, or `wanted` when the hub allows it.

    Raises:
        Fatal: the wanted mode is not safe here; `fix` says what to change.
        Transient: the hub cannot be reached now.
    """
    if wanted is WriteMode.FULL_REPLICA:
        return wanted
    problem = await policy_in_force(client)
    found = HubWriting(Known.YES if problem is None else Known.NO, Known.UNKNOWN, problem or "")
    if problem is not None or wanted is WriteMode.MERGE_PATCH_GATE:
        probed = await probe(client, clock)
        policy = Known.YES if Known.YES in (found.policy, probed.policy) else found.policy
        found = HubWriting(policy, probed.gate, found.policy_problem, probed.problem)
    mode = choose_mode(found, wanted)
    get_logger().info(
        "write_mode",
        mode=mode,
        policy=found.policy,
        policy_problem=found.policy_problem,
        gate=found.gate,
        gate_problem=found.gate_problem,
    )
    return mode


# --- the clearing policy -----------------------------------------------------------------------------------------


async def policy_in_force(client: ApiClient) -> str | None:
    """None when the policy and its binding look right, else what is wrong with them. Raises Transient, Refused."""
    for version in ("v1", "v1beta1"):
        base = f"/apis/admissionregistration.k8s.io/{version}"
        try:
            policy = await client.get(f"{base}/mutatingadmissionpolicies/{POLICY}")
        except NotFound:
            continue
        bindings = await client.get(f"{base}/mutatingadmissionpolicybindings")
        return policy_problem(policy) or binding_problem(bindings)
    return f"MutatingAdmissionPolicy {POLICY} is not on the hub"


def policy_problem(policy: Raw) -> str | None:
    """Why a policy of the right name does not do its work; None when it does."""
    spec = child(policy, "spec")
    if not any(_covers(rule) for rule in children(child(spec, "matchConstraints"), "resourceRules")):
        return f"MutatingAdmissionPolicy {POLICY} does not match UPDATE of workloads/status in {_KUEUE}/v1beta2"
    patches = [
        text(child(mutation, part), "expression")
        for mutation in children(spec, "mutations")
        for part in ("jsonPatch", "applyConfiguration")
    ]
    if not any("nominatedClusterNames" in patch for patch in patches):
        return f"MutatingAdmissionPolicy {POLICY} does not change status.nominatedClusterNames"
    return None


def _covers(rule: Raw) -> bool:
    def has(key: str, *any_of: str) -> bool:
        return bool({"*", *any_of} & set(texts(rule, key)))

    return (
        has("apiGroups", _KUEUE)
        and has("apiVersions", "v1beta2")
        and has("operations", "UPDATE")
        and has("resources", "workloads/status", "*/*", "workloads/*")
    )


def binding_problem(bindings: Raw) -> str | None:
    """Why no binding puts the policy into force everywhere; None when one does."""
    ours = [child(b, "spec") for b in children(bindings, "items") if text(child(b, "spec"), "policyName") == POLICY]
    if not ours:
        return f"MutatingAdmissionPolicy {POLICY} has no MutatingAdmissionPolicyBinding: it is not in force"
    if all(_narrowed(spec) for spec in ours):
        return f"every binding of MutatingAdmissionPolicy {POLICY} has matchResources: it is not in force everywhere"
    return None


def _narrowed(spec: Raw) -> bool:
    """The API fills in empty selectors and a match policy; anything else keeps some Workloads out."""
    match = child(spec, "matchResources")
    return any(match.get(key) for key in match if key != "matchPolicy")


# --- the probe ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Probed:
    """What the probe showed; `problem` says why it showed nothing."""

    gate: Known = Known.UNKNOWN
    policy: Known = Known.UNKNOWN
    problem: str = ""


async def probe(client: ApiClient, clock: Clock) -> Probed:
    """See the module's text. Never raises for what the hub answers: what cannot be probed stays unknown."""
    path = f"{KUEUE}/namespaces/{PROBE_NAMESPACE}/workloads"
    try:
        await _create(client, path)
    except EntrepotError as error:
        return Probed(problem=f"the probe could not be made: {error}")
    try:
        answered = await _answer(client, clock, path)
        if answered is None:
            return Probed(problem=f"Kueue did not answer the probe within {ANSWER_S:g} s")
        gate = gate_of(answered)
        problem = "" if gate is Known.YES else f"Kueue writes status by apply as {KUEUE_MANAGER}: the gate is off"
        return Probed(gate, await _policy_by_dry_run(client, path, answered), problem)
    except EntrepotError as error:
        return Probed(problem=f"the probe was not answered: {error}")
    finally:
        await _delete(client, path)


async def _create(client: ApiClient, path: str) -> None:
    try:
        await client.once(Call("POST", path, body=probe_body()))
    except Conflict:
        # One was left by a start that was killed here.
        await _delete(client, path)
        await client.once(Call("POST", path, body=probe_body()))


async def _delete(client: ApiClient, path: str) -> None:
    try:
        await client.once(Call("DELETE", f"{path}/{PROBE}"))
    except NotFound:
        return
    except EntrepotError as error:
        get_logger().warning("probe_not_deleted", namespace=PROBE_NAMESPACE, name=PROBE, error=str(error))


def probe_body() -> dict[str, Any]:
    """A Workload that names a LocalQueue which does not exist, so that nothing can ever come of it."""
    container = {"name": "probe", "image": "none", "resources": {"requests": {"cpu": "1m"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": PROBE, "namespace": PROBE_NAMESPACE},
        "spec": {"queueName": PROBE, "active": True, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }


async def _answer(client: ApiClient, clock: Clock, path: str) -> Raw | None:
    """The probe once Kueue has written its status."""
    until_s = clock.monotonic_s() + ANSWER_S
    while clock.monotonic_s() < until_s:
        listed = await client.get(path, {"fieldSelector": f"metadata.name={PROBE}"})
        for found in children(listed, "items"):
            if any(children(child(found, "status"), "conditions")):
                return found
        await clock.sleep(_LOOK_S)
    return None


def gate_of(workload: Raw) -> Known:
    """Whether the conditions of a Workload that only Kueue has written were written by merge patch."""
    found = Known.UNKNOWN
    for entry in children(child(workload, "metadata"), "managedFields"):
        if text(entry, "subresource") != "status" or not child(entry, "fieldsV1", "f:status", "f:conditions"):
            continue
        if text(entry, "operation") == "Apply":
            return Known.NO
        found = Known.YES
    return found


async def _policy_by_dry_run(client: ApiClient, path: str, workload: Raw) -> Known:
    """Whether an eviction empties a list of our manager: asked with dryRun, so nothing is written."""
    conditions = [*children(child(workload, "status"), "conditions"), _EVICTED]
    call = Call(
        "PATCH",
        f"{path}/{PROBE}/status",
        {"fieldManager": FIELD_MANAGER, "dryRun": "All"},
        body={"status": {"conditions": conditions, "nominatedClusterNames": [PROBE]}},
        content_type=MERGE_PATCH,
    )
    try:
        answer = child(await client.once(call), "status")
    except EntrepotError:
        return Known.UNKNOWN
    return Known.NO if texts(answer, "nominatedClusterNames") else Known.YES


_EVICTED = {
    "type": "Evicted",
    "status": "True",
    "reason": "Probe",
    "message": "dry run: never written",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
