"""The nomination write: a merge patch of one field, guarded by uid and resourceVersion.

kueue-contract section 3: with the hub's clearing policy installed (preflight.py makes sure) a plain merge patch under
a manager of our own is safe; without it Kueue could never clear the field again. The resourceVersion makes a decision
on an old object fail with 409 instead of landing on a newer one (FR-RAC-01).
"""

from __future__ import annotations

from urllib.parse import quote

from connectors.kubernetes.client import MERGE_PATCH, Call
from dispatcher.core.errors import Refused
from dispatcher.core.ports import Nomination

FIELD_MANAGER = "entrepot"
MOST_CLUSTERS = 20
"""MaxItems of status.nominatedClusterNames since Kueue 0.16."""


def nomination_call(nomination: Nomination) -> Call:
    """The PATCH of `workloads/status`.

    Raises:
        Refused: the list cannot be a valid one; nothing is sent.
    """
    names = [str(name) for name in nomination.clusters]
    if not names or len(names) > MOST_CLUSTERS or len(set(names)) != len(names) or not all(names):
        raise Refused(f"a nomination needs 1 to {MOST_CLUSTERS} different clusters, not {names}")
    if not nomination.resource_version or not nomination.uid:
        raise Refused("a nomination needs the uid and the resourceVersion that it was decided on")
    namespace, name = quote(nomination.namespace, safe=""), quote(nomination.name, safe="")
    return Call(
        "PATCH",
        f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads/{name}/status",
        {"fieldManager": FIELD_MANAGER},
        body={
            "metadata": {"uid": nomination.uid, "resourceVersion": nomination.resource_version},
            "status": {"nominatedClusterNames": names},
        },
        content_type=MERGE_PATCH,
    )
