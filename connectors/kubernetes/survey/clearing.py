"""The clearing policy as it stands on a hub, against what Kueue ships (kueue-contract section 3.2). Pure."""

from __future__ import annotations

from connectors.kubernetes.fields import Raw, child, children, text, texts
from dispatcher.core.doctor.facts import PolicyFault

Faults = list[tuple[PolicyFault, str]]
_KUEUE = "kueue.x-k8s.io"
_SELECTORS = ("namespaceSelector", "objectSelector", "excludeResourceRules")


def policy_faults(policy: Raw) -> Faults:
    """How a policy of the right name differs from the one that works."""
    spec = child(policy, "spec")
    match = child(spec, "matchConstraints")
    found: Faults = []
    if not any(_covers(rule) for rule in children(match, "resourceRules")):
        found.append((PolicyFault.RULES, ""))
    narrowed = [key for key in _SELECTORS if match.get(key)]
    if narrowed:
        found.append((PolicyFault.RULES, f"matchConstraints has {', '.join(narrowed)}"))
    expressions = " ".join(
        text(child(mutation, part), "expression")
        for mutation in children(spec, "mutations")
        for part in ("jsonPatch", "applyConfiguration")
    )
    if "nominatedClusterNames" not in expressions:
        found.append((PolicyFault.MUTATION, ""))
    conditions = " ".join(text(entry, "expression") for entry in children(spec, "matchConditions"))
    lacking = [word for word in ("clusterName", "Evicted") if word not in conditions]
    if lacking:
        found.append((PolicyFault.CONDITIONS, f"no condition speaks of {' or '.join(lacking)}"))
    if text(spec, "failurePolicy") not in ("", "Fail"):
        found.append((PolicyFault.FAILURE_POLICY, text(spec, "failurePolicy")))
    if child(spec, "paramKind"):
        found.append((PolicyFault.PARAMETERS, text(child(spec, "paramKind"), "kind")))
    return found


def binding_faults(bindings: tuple[Raw, ...], policy: str) -> Faults:
    """Why no binding puts the policy into force everywhere; empty when one does."""
    ours = [child(raw, "spec") for raw in bindings if text(child(raw, "spec"), "policyName") == policy]
    if not ours:
        return [(PolicyFault.NOT_BOUND, "")]
    if all(_narrowed(spec) for spec in ours):
        return [(PolicyFault.BINDING_NARROWED, "")]
    return []


def _narrowed(spec: Raw) -> bool:
    """The API fills in empty selectors and a match policy; anything else keeps some Workloads out."""
    match = child(spec, "matchResources")
    return bool(child(spec, "paramRef")) or any(match.get(key) for key in match if key != "matchPolicy")


def _covers(rule: Raw) -> bool:
    def has(key: str, *any_of: str) -> bool:
        return bool({"*", *any_of} & set(texts(rule, key)))

    return (
        has("apiGroups", _KUEUE)
        and has("apiVersions", "v1beta2")
        and has("operations", "UPDATE")
        and has("resources", "workloads/status", "*/*", "workloads/*")
    )


def writes_old_api(workload: Raw) -> bool:
    """Whether somebody has written this Workload's status through v1beta1, past the policy's rules."""
    return any(
        text(entry, "apiVersion") == f"{_KUEUE}/v1beta1" and text(entry, "subresource") == "status"
        for entry in children(child(workload, "metadata"), "managedFields")
    )
