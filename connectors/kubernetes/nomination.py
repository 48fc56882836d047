"""The nomination write, in the two forms that a hub may need (dispatcher/core/writing.py says which).

Both are guarded by uid and resourceVersion: a decision on an old object fails with 409 instead of landing on a newer
one (FR-RAC-01), and the content type is explicit (FR-NOM-09).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from connectors.kubernetes.client import MERGE_PATCH, Call
from connectors.kubernetes.fields import Raw, child, children, text
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ports import Nomination

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
FIELD_MANAGER = "entrepot"
KUEUE_MANAGER = "kueue-admission"
APPLY_PATCH = "application/apply-patch+yaml"
MOST_CLUSTERS = 20
"""MaxItems of status.nominatedClusterNames since Kueue 0.16."""

_CONDITIONS = frozenset(
    (
        "QuotaReserved",
        "BlockedOnPreemptionGates",
        "Evicted",
        "Admitted",
        "Preempted",
        "Requeued",
        "DeactivationTarget",
        "Finished",
    )
)
_STATUS = (
    "admission",
    "accumulatedPastExecutionTimeSeconds",
    "clusterName",
    "unhealthyNodes",
    "preemptionGates",
    "admissionChecks",
)
"""Fields of a full replica that are copied as they are; the others have a rule each (kueue-contract section 3.2)."""
_BY_RULE = frozenset(("conditions", "requeueState", "resourceRequests", "schedulingStats", "nominatedClusterNames"))
_OF_OTHERS = frozenset(("reclaimablePods",))
"""Never repeated: another manager of Kueue's owns them, and a copy of ours would outlive its change."""


def nomination_call(nomination: Nomination) -> Call:
    """The PATCH of `workloads/status` for a hub that clears nominations of any manager.

    Raises:
        Refused: the list cannot be a valid one; nothing is sent.
    """
    return _merge(nomination, _checked(nomination))


def withdrawal_call(nomination: Nomination) -> Call:
    """Empty the list, whoever owns it: null in a merge patch removes a value of every manager."""
    _guarded(nomination)
    return _merge(nomination, None)


def _merge(nomination: Nomination, names: Sequence[str] | None) -> Call:
    return Call(
        "PATCH",
        f"{_path(nomination)}/status",
        {"fieldManager": FIELD_MANAGER},
        body={
            "metadata": {"uid": nomination.uid, "resourceVersion": nomination.resource_version},
            "status": {"nominatedClusterNames": names},
        },
        content_type=MERGE_PATCH,
    )


def replica_call(nomination: Nomination, current: Raw) -> Call:
    """The same by server-side apply as Kueue's own manager, with everything else that this manager owns.

    `current` is the Workload as read for this write.

    Raises:
        Conflict: `current` is not what the nomination was decided on.
        Refused: the list cannot be a valid one; nothing is sent.
    """
    names = _checked(nomination)
    meta = child(current, "metadata")
    seen = (text(meta, "uid"), text(meta, "resourceVersion"))
    if seen != (nomination.uid, nomination.resource_version):
        raise Conflict(f"{nomination.namespace}/{nomination.name} is newer than what was decided on")
    return Call(
        "PATCH",
        f"{_path(nomination)}/status",
        {"fieldManager": KUEUE_MANAGER, "force": "true"},
        body=replica(current, names),
        content_type=APPLY_PATCH,
    )


def replica(current: Raw, names: Sequence[str]) -> dict[str, Any]:
    """The body of Kueue's own status write, with `names` in it.

    The fields are those of kueue-contract section 3.2 and whatever more `kueue-admission` owns on this very object by
    its managedFields: a version of Kueue that writes more under that name (0.19: PodsReady) loses nothing by us.
    """
    meta, status = child(current, "metadata"), child(current, "status")
    owned = owned_status(current)
    wanted = _CONDITIONS | set(_owned_conditions(owned))
    more = sorted(
        key.removeprefix("f:")
        for key in owned
        if key.startswith("f:") and key.removeprefix("f:") not in {*_STATUS, *_BY_RULE, *_OF_OTHERS}
    )
    found: dict[str, Any] = {key: status[key] for key in (*_STATUS, *more) if key in status}
    conditions = [entry for entry in children(status, "conditions") if entry.get("type") in wanted]
    if conditions:
        found["conditions"] = conditions
    requeue = child(status, "requeueState")
    if "count" in requeue or "requeueAt" in requeue:
        found["requeueState"] = requeue
    if "admission" in status:
        found["resourceRequests"] = []
    elif "resourceRequests" in status:
        found["resourceRequests"] = status["resourceRequests"]
    evictions = child(status, "schedulingStats").get("evictions")
    if evictions:
        found["schedulingStats"] = {"evictions": evictions}
    found["nominatedClusterNames"] = list(names)
    kept = ("name", "namespace", "uid", "generation", "resourceVersion", "labels", "annotations")
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "status": found,
    }


def owned_status(current: Raw) -> Raw:
    """The status fields that Kueue's manager owns by apply, as managedFields lists them (`f:` keys)."""
    for entry in children(child(current, "metadata"), "managedFields"):
        if (text(entry, "manager"), text(entry, "operation"), text(entry, "subresource")) == (
            KUEUE_MANAGER,
            "Apply",
            "status",
        ):
            return child(entry, "fieldsV1", "f:status")
    return {}


def _owned_conditions(owned: Raw) -> Iterator[str]:
    """Condition types among owned list items, whose keys look like k:{"type":"Admitted"}."""
    for key in child(owned, "f:conditions"):
        if key.startswith('k:{"type":"') and key.endswith('"}'):
            yield key.removeprefix('k:{"type":"').removesuffix('"}')


def read_call(nomination: Nomination) -> Call:
    """One Workload, whole, by a list of one: `list` is a permission that the daemon has anyway."""
    namespace, name = quote(nomination.namespace, safe=""), nomination.name
    return Call("GET", f"{KUEUE}/namespaces/{namespace}/workloads", {"fieldSelector": f"metadata.name={name}"})


def _path(nomination: Nomination) -> str:
    namespace, name = quote(nomination.namespace, safe=""), quote(nomination.name, safe="")
    return f"{KUEUE}/namespaces/{namespace}/workloads/{name}"


def _checked(nomination: Nomination) -> list[str]:
    names = [str(name) for name in nomination.clusters]
    if not names or len(names) > MOST_CLUSTERS or len(set(names)) != len(names) or not all(names):
        raise Refused(f"a nomination needs 1 to {MOST_CLUSTERS} different clusters, not {names}")
    _guarded(nomination)
    return names


def _guarded(nomination: Nomination) -> None:
    if not nomination.resource_version or not nomination.uid:
        raise Refused("a nomination needs the uid and the resourceVersion that it was decided on")
