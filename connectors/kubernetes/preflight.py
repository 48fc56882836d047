"""Looks, before the daemon starts, whether this hub can be dispatched for, and says exactly what to change if not.

The rule that matters most: a nomination must be written in a way that Kueue can clear (write_modes.py, FR-NOM-01);
otherwise jobs would run on workers while the hub believes that nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.kubernetes.client import MERGE_PATCH, ApiClient, Call
from connectors.kubernetes.faults import NotFound, UnsupportedPatch
from connectors.kubernetes.fields import child, children, text
from connectors.kubernetes.nomination import FIELD_MANAGER, KUEUE
from connectors.kubernetes.write_modes import POLICY, PROBE_NAMESPACE, binding_problem, detect, policy_problem
from dispatcher.core.errors import Fatal, Refused
from dispatcher.core.ports import Clock
from dispatcher.core.writing import WriteMode

__all__ = ["NEEDED", "POLICY", "Permission", "binding_problem", "check", "policy_problem", "rbac_rules"]

OLDEST_MINOR = 35
_KUEUE = "kueue.x-k8s.io"
_ADMISSION = "admissionregistration.k8s.io"


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
NOBODY = "entrepot-self-check"
"""A Workload that does not exist."""
NEEDED = (
    *(Permission(verb, group, resource) for group, resource in _READ for verb in ("list", "watch")),
    Permission("patch", _KUEUE, "workloads", "status"),
    *(Permission(verb, "", "events") for verb in ("create", "get", "patch")),
    Permission("get", "", "namespaces", name="kube-system"),
    Permission("get", _ADMISSION, "mutatingadmissionpolicies", name=POLICY),
    Permission("list", _ADMISSION, "mutatingadmissionpolicybindings"),
)
"""deploy/hub/rbac.yaml grants them. JobSets are not among them: a hub may have none, and readiness names them."""


async def check(client: ApiClient, clock: Clock, wanted: WriteMode | None = None) -> WriteMode:
    """Everything, in the order in which a person would mend it. Returns how nominations are to be written.

    Raises:
        Fatal: `fix` says what to change on the hub.
        Transient: the hub cannot be reached now.
    """
    await client.refresh()
    try:
        await _check_version(client)
        await _check_kueue(client)
        await _check_permissions(client)
        await _check_patch_type(client)
        return await detect(client, clock, wanted)
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


async def _check_patch_type(client: ApiClient) -> None:
    """Ask with a dry run of a Workload that does not exist: 404 says that the hub takes our patch type (FR-NOM-09)."""
    path = f"{KUEUE}/namespaces/{PROBE_NAMESPACE}/workloads/{NOBODY}/status"
    call = Call("PATCH", path, {"fieldManager": FIELD_MANAGER, "dryRun": "All"}, {}, content_type=MERGE_PATCH)
    try:
        await client.once(call)
    except NotFound:
        return
    except UnsupportedPatch as error:
        raise Fatal(
            f"the hub does not take a merge patch of workloads/status: {error}",
            "see what stands between here and the hub's apiserver: it changes or refuses Content-Type",
        ) from error


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
