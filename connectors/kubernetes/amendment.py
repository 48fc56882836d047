"""Writes on a hub Workload itself, beside its status: annotations of ours, and spec.active (kueue-contract section 6).

A merge patch, guarded as a nomination is. It needs a permission of its own, which deploy/interactive grants and guards.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from connectors.kubernetes.client import MERGE_PATCH, Call
from connectors.kubernetes.fields import KEY_PREFIX
from connectors.kubernetes.nomination import FIELD_MANAGER, KUEUE
from dispatcher.core.errors import Refused
from dispatcher.core.ports import Amendment


def amendment_call(amendment: Amendment) -> Call:
    """The PATCH of `workloads`.

    Raises:
        Refused: it is not guarded, or would write what is not ours; nothing is sent.
    """
    if not amendment.resource_version or not amendment.uid:
        raise Refused("a write needs the uid and the resourceVersion that it was decided on")
    foreign = [key for key, _ in amendment.annotations if not key.startswith(KEY_PREFIX)]
    if foreign:
        raise Refused(f"annotations of others are not ours to write: {', '.join(foreign)}")
    namespace, name = quote(amendment.namespace, safe=""), quote(amendment.name, safe="")
    body: dict[str, Any] = {
        "metadata": {
            "uid": amendment.uid,
            "resourceVersion": amendment.resource_version,
            "annotations": dict(amendment.annotations),
        }
    }
    if amendment.deactivate:
        body["spec"] = {"active": False}
    return Call(
        "PATCH",
        f"{KUEUE}/namespaces/{namespace}/workloads/{name}",
        {"fieldManager": FIELD_MANAGER},
        body=body,
        content_type=MERGE_PATCH,
    )
