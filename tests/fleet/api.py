"""A few plain calls to an apiserver, enough to set up a fleet: apply, get, patch, wait.

Entrepot's own client lives in `connectors/`; this one is kept apart so that the test bed does not lean on the code
that it tests.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from tests.fleet.processes import FleetError, wait_until

FIELD_MANAGER = "entrepot-fleet"
REQUEST_TIMEOUT_SECONDS = 20.0
APPLY_RETRY_SECONDS = 30.0
KIND_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Secret",
    "PriorityClass",
    "Topology",
    "ResourceFlavor",
    "WorkloadPriorityClass",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "AdmissionCheck",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
)  # what others refer to comes first; kinds not named come last


class KubeApi:
    """One apiserver, its token and its CA."""

    def __init__(self, server_url: str, token: str, ca_pem: bytes) -> None:
        context = ssl.create_default_context(cadata=ca_pem.decode())
        self._client = httpx.Client(
            base_url=server_url,
            headers={"Authorization": f"Bearer {token}"},
            verify=context,
            timeout=REQUEST_TIMEOUT_SECONDS,
            trust_env=False,
        )
        self._plurals: dict[str, dict[str, tuple[str, bool]]] = {}

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def __enter__(self) -> KubeApi:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_ready(self) -> bool:
        """Whether the apiserver says that it serves."""
        try:
            return self._client.get("/readyz", timeout=3.0).status_code == 200
        except httpx.HTTPError:
            return False

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
    ) -> dict[str, Any]:
        """One call; an answer that is no success raises FleetError with the server's message."""
        content = None if body is None else json.dumps(body)
        try:
            answer = self._client.request(
                method, path, content=content, params=query or None, headers={"Content-Type": content_type}
            )
        except httpx.HTTPError as error:
            raise FleetError(f"{method} {self._client.base_url}{path}: {type(error).__name__} {error}") from error
        if answer.is_error:
            raise ApiRefusal(answer.status_code, f"{method} {path}: {answer.status_code} {_message(answer)}")
        parsed: dict[str, Any] = answer.json()
        return parsed

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at a path, or None."""
        try:
            return self.request("GET", path)
        except ApiRefusal as refusal:
            if refusal.status_code == 404:
                return None
            raise

    def merge_patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merge-patch an object or a subresource."""
        return self.request("PATCH", path, body, "application/merge-patch+json", fieldManager=FIELD_MANAGER)

    def path_of(self, manifest: Mapping[str, Any]) -> str:
        """Where a manifest's object lives, by the apiserver's own discovery."""
        group_version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        if kind not in self._plurals.get(group_version, {}):
            resources = self.request("GET", root)["resources"]
            self._plurals[group_version] = {
                item["kind"]: (item["name"], item["namespaced"]) for item in resources if "/" not in item["name"]
            }
        if kind not in self._plurals[group_version]:
            raise FleetError(f"the apiserver serves no {kind} in {group_version}")
        plural, namespaced = self._plurals[group_version][kind]
        metadata = manifest["metadata"]
        middle = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{root}{middle}/{plural}/{metadata['name']}"

    def apply(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Server-side apply. Tries again while a webhook or a kind that it needs is not served yet."""
        deadline = time.monotonic() + APPLY_RETRY_SECONDS
        while True:
            try:
                return self.request(
                    "PATCH",
                    self.path_of(manifest),
                    manifest,
                    "application/apply-patch+yaml",
                    fieldManager=FIELD_MANAGER,
                    force="true",
                )
            except ApiRefusal as refusal:
                if time.monotonic() > deadline or refusal.status_code not in {404, 429, 500, 503, 504}:
                    raise
            time.sleep(0.3)

    def apply_all(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Apply in an order in which references resolve."""
        for manifest in sorted(manifests, key=_rank):
            self.apply(manifest)

    def delete_all(self, manifests: Sequence[Mapping[str, Any]], timeout_seconds: float) -> None:
        """Delete in the other order, and wait until nothing of them is left; what is gone already is no error."""
        paths = [self.path_of(manifest) for manifest in sorted(manifests, key=_rank, reverse=True)]
        for path in paths:
            try:
                self.request("DELETE", path, {"propagationPolicy": "Background"})
            except ApiRefusal as refusal:
                if refusal.status_code != 404:
                    raise
        wait_until(lambda: not any(self.get(path) for path in paths), timeout_seconds, f"{len(paths)} objects to go")


class ApiRefusal(FleetError):
    """The apiserver answered with an error."""

    def __init__(self, status_code: int, message: str) -> None:
        super().__init__(message)
        self.status_code = status_code


def wait_for_condition(api: KubeApi, manifest: Mapping[str, Any], kind: str, timeout_seconds: float) -> None:
    """Wait until an object has a condition. Raises FleetError with its name after `timeout_seconds`."""
    path = api.path_of(manifest)
    what = f"{manifest['kind']} {manifest['metadata']['name']} to be {kind}"
    wait_until(lambda: condition_is(api.get(path), kind), timeout_seconds, what)


def condition_is(resource: Mapping[str, Any] | None, kind: str, status: str = "True") -> bool:
    """Whether an object has a status condition of that type and status."""
    conditions = (resource or {}).get("status", {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == status for c in conditions)


def _rank(manifest: Mapping[str, Any]) -> int:
    kind = manifest["kind"]
    return KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER)


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("message", answer.text))
    except ValueError:
        return answer.text[:500]
