"""Ending an attempt through the hub: the MultiKueue check of a Workload goes to Retry (kueue-contract section 6).

By server-side apply of that one entry under a manager of our own: the list of checks is keyed by name, so nothing else
on the Workload is claimed, and Kueue, which applies with force, takes the entry back when it resets it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from connectors.kubernetes.client import Call
from connectors.kubernetes.nomination import APPLY_PATCH, FIELD_MANAGER, KUEUE
from dispatcher.core.errors import Refused
from dispatcher.core.ports import Eviction

RETRY = "Retry"
MOST_MESSAGE = 1000


def eviction_call(eviction: Eviction, now: datetime) -> Call:
    """The PATCH of `workloads/status`.

    Raises:
        Refused: it is not guarded or names no check; nothing is sent.
    """
    if not eviction.resource_version or not eviction.uid or not eviction.check:
        raise Refused("an eviction needs the check, and the uid and resourceVersion that it was decided on")
    namespace, name = quote(eviction.namespace, safe=""), quote(eviction.name, safe="")
    at = now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    check: dict[str, object] = {
        "name": eviction.check,
        "state": RETRY,
        "message": eviction.message[:MOST_MESSAGE],
        "lastTransitionTime": at,
    }
    if eviction.requeue_after_s is not None:
        check["requeueAfterSeconds"] = eviction.requeue_after_s
    meta = {
        "name": eviction.name,
        "namespace": eviction.namespace,
        "uid": eviction.uid,
        "resourceVersion": eviction.resource_version,
    }
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": meta,
        "status": {"admissionChecks": [check]},
    }
    return Call(
        "PATCH",
        f"{KUEUE}/namespaces/{namespace}/workloads/{name}/status",
        {"fieldManager": f"{FIELD_MANAGER}-law", "force": "true"},
        body=body,
        content_type=APPLY_PATCH,
    )
