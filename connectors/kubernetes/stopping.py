"""Stopping one copy on its worker: `spec.active` becomes false, and that worker's Kueue evicts it (ADR 22)."""

from __future__ import annotations

from urllib.parse import quote

from connectors.kubernetes.client import MERGE_PATCH, Call
from connectors.kubernetes.nomination import FIELD_MANAGER, KUEUE
from dispatcher.core.errors import Refused
from dispatcher.core.ports import Stop


def stop_call(stop: Stop) -> Call:
    """The PATCH that deactivates one copy. The apiserver refuses it where the uid is another's.

    Raises:
        Refused: it is not guarded; nothing is sent.
    """
    if not stop.uid:
        raise Refused("a copy is stopped by its uid")
    namespace, name = quote(stop.namespace, safe=""), quote(stop.name, safe="")
    return Call(
        "PATCH",
        f"{KUEUE}/namespaces/{namespace}/workloads/{name}",
        {"fieldManager": FIELD_MANAGER},
        body={"metadata": {"uid": stop.uid}, "spec": {"active": False}},
        content_type=MERGE_PATCH,
    )
