"""Looks, before the daemon starts, whether this hub can be dispatched for, and says exactly what to change if not.

The rule that matters most: without the admission policy that clears our nominations Kueue can never latch a cluster
(kueue-contract section 3.2, FR-NOM-01), and jobs would run on workers while the hub believes that nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.kubernetes.client import ApiClient, Call
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw, child, children, text, texts
from dispatcher.core.errors import Fatal, Refused

POLICY = "clear-nominated-cluster-names"
OLDEST_MINOR = 35
_KUEUE = "kueue.x-k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_POLICY_FIX = (
    "apply Kueue's config/components/map/manifests.yaml on the hub (release artifact workload-map.yaml, Helm value "
    "enableMutatingAdmissionPolicy=true); it needs Kubernetes 1.36, or 1.35 with the manifest as "
    "admissionregistration.k8s.io/v1beta1 and the feature gate MutatingAdmissionPolicy"
)


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that our account must be allowed to do, in all namespaces; with a `name`, to that one object only."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""

    @property
    def rule_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def words(self) -> str:
        return " ".join(part for part in (self.verb, self.rule_resource, self.name) if part)


_READ = (
    (_KUEUE, "workloads"),
    (_KUEUE, "admissionchecks"),
    (_KUEUE, "multikueueconfigs"),
    (_KUEUE, "multikueueclusters"),
    (_KUEUE, "clusterqueues"),
    (_KUEUE, "localqueues"),
    ("batch", "jobs"),
)
NEEDED = (
    *(Permission(verb, group, resource) for group, resource in _READ for verb in ("list", "watch")),
    Permission("patch", _KUEUE, "workloads", "status"),
    *(Permission(verb, "", "events") for verb in ("create", "get", "patch")),
    Permission("get", "", "namespaces", name="kube-system"),
    Permission("get", _ADMISSION, "mutatingadmissionpolicies", name=POLICY),
    Permission("list", _ADMISSION, "mutatingadmissionpolicybindings"),
)
"""deploy/hub/rbac.yaml grants them. JobSets are not among them: a hub may have none, and readiness names them."""


async def check(client: ApiClient) -> None:
    """Everything, in the order in which a person would mend it.

    Raises:
        Fatal: `fix` says what to change on the hub.
        Transient: the hub cannot be reached now.
    """
    await client.refresh()
    try:
        await _check_version(client)
        await _check_kueue(client)
        await _check_permissions(client)
        await _check_policy(client)
    except Refused as error:
        raise Fatal(f"the hub refuses us: {error}", "check the kubeconfig (or service account) of the hub") from error


async def _check_version(client: ApiClient) -> None:
    version = await client.get("/version")
    digits = "".join(c for c in text(version, "minor") if c.isdigit())
    if text(version, "major") == "1" and digits and int(digits) < OLDEST_MINOR:
        raise Fatal(
            f"the hub runs Kubernetes {text(version, 'gitVersion')}; the oldest that works is 1.{OLDEST_MINOR}",
            f"upgrade the hub to Kubernetes 1.{OLDEST_MINOR} or later (1.36 is tested)",
        )


async def _check_kueue(client: ApiClient) -> None:
    fix = "install Kueue 0.17 or later on the hub, with MultiKueue (0.19.2 is tested)"
    try:
        served = await client.get(f"/apis/{_KUEUE}/v1beta2")
    except NotFound:
        raise Fatal(f"the hub does not serve {_KUEUE}/v1beta2", fix) from None
    kinds = {text(resource, "name") for resource in children(served, "resources")}
    missing = sorted({resource for group, resource in _READ if group == _KUEUE} - kinds)
    if missing or "workloads/status" not in kinds:
        raise Fatal(f"the hub does not serve {', '.join(missing or ['workloads/status'])} of {_KUEUE}/v1beta2", fix)


async def _check_permissions(client: ApiClient) -> None:
    denied = [permission for permission in NEEDED if not await _allowed(client, permission)]
    if denied:
        raise Fatal(
            "the hub does not allow us to " + ", ".join(p.words for p in denied),
            "add to the ClusterRole of the daemon's account: " + rbac_rules(denied),
        )


async def _allowed(client: ApiClient, permission: Permission) -> bool:
    attributes = {"verb": permission.verb, "group": permission.group, "resource": permission.resource}
    if permission.subresource:
        attributes["subresource"] = permission.subresource
    if permission.name:
        attributes["name"] = permission.name
    review = await client.once(
        Call(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
        )
    )
    return child(review, "status").get("allowed") is True


def rbac_rules(permissions: Sequence[Permission]) -> str:
    """ClusterRole rules that grant them, in YAML's flow form so that they fit into one line of a message."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for permission in permissions:
        key = (permission.group, permission.rule_resource, permission.name)
        verbs.setdefault(key, []).append(permission.verb)
    rules = [
        f'{{apiGroups: ["{group}"], resources: ["{resource}"], '
        + (f'resourceNames: ["{name}"], ' if name else "")
        + f"verbs: [{', '.join(allowed)}]}}"
        for (group, resource, name), allowed in verbs.items()
    ]
    return "[" + ", ".join(rules) + "]"


# --- the clearing policy -----------------------------------------------------------------------------------------


async def _check_policy(client: ApiClient) -> None:
    for version in ("v1", "v1beta1"):
        base = f"/apis/admissionregistration.k8s.io/{version}"
        try:
            policy = await client.get(f"{base}/mutatingadmissionpolicies/{POLICY}")
        except NotFound:
            continue
        bindings = await client.get(f"{base}/mutatingadmissionpolicybindings")
        problem = policy_problem(policy) or binding_problem(bindings)
        if problem is not None:
            raise Fatal(problem, _POLICY_FIX)
        return
    raise Fatal(
        f"MutatingAdmissionPolicy {POLICY} is not on the hub: Kueue could never clear a nomination", _POLICY_FIX
    )


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
