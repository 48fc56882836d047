"""The Lease on a real apiserver (coordination.k8s.io/v1): one object, every write guarded by its resourceVersion.

It has a client of its own: a renewal must not queue behind lists and watches. Metadata that others put on the object
is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from connectors.kubernetes.client import ApiClient, Call
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw, child, instant, integer, text
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.lease import ABSENT, LeaseRecord

LEASE = "entrepot"
NAMESPACE = "entrepot-system"
API = "coordination.k8s.io/v1"
_KEPT = ("uid", "labels", "annotations", "ownerReferences")
"""What a write sends back as it was read. The uid is a guard: of Leases the API makes one that is missing out of an
update, with whatever resourceVersion; with a uid it answers 409."""


class KubernetesLease:
    """`LeasePort` over a real apiserver. `deadline_s` bounds each call."""

    def __init__(
        self, client: ApiClient, namespace: str = NAMESPACE, name: str = LEASE, deadline_s: float = 5.0
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._deadline_s = deadline_s
        self._metadata: Raw = {}

    async def read(self) -> LeaseRecord:
        """See `LeasePort.read`. One try: whoever asks comes round again soon."""
        try:
            found = await self._client.once(Call("GET", self._path(self._name), deadline_s=self._deadline_s))
        except NotFound:
            return ABSENT
        return self._record(found)

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """See `LeasePort.write`."""
        body = lease_body(self._namespace, self._name, record, self._metadata if record.version else {})
        if record.version:
            call = Call("PUT", self._path(self._name), body=body, deadline_s=self._deadline_s)
        else:
            call = Call("POST", self._path(), body=body, deadline_s=self._deadline_s)
        try:
            return self._record(await self._client.once(call))
        except NotFound as error:
            if record.version:
                raise Conflict(f"the Lease {self._namespace}/{self._name} was deleted") from None
            # A create is answered so only where the namespace itself is missing.
            raise Refused(f"the hub has no namespace {self._namespace} for the Lease: create it ({error})") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def _record(self, raw: Raw) -> LeaseRecord:
        found = lease_record(raw)
        metadata = child(raw, "metadata")
        self._metadata = {key: metadata[key] for key in _KEPT if key in metadata}
        return found

    def _path(self, name: str = "") -> str:
        base = f"/apis/{API}/namespaces/{quote(self._namespace, safe='')}/leases"
        return f"{base}/{quote(name, safe='')}" if name else base


def lease_record(raw: Raw) -> LeaseRecord:
    """What a Lease says. Fields that are missing read as released; nothing is decided by its times.

    Raises:
        Refused: an object without a resourceVersion is no answer of an apiserver.
    """
    spec, version = child(raw, "spec"), text(child(raw, "metadata"), "resourceVersion")
    if not version:
        raise Refused("the hub's answer is no Lease: it has no resourceVersion")
    return LeaseRecord(
        holder=text(spec, "holderIdentity"),
        duration_s=max(0, integer(spec, "leaseDurationSeconds", 0)),
        transitions=max(0, integer(spec, "leaseTransitions", 0)),
        version=version,
        acquired_at=instant(spec.get("acquireTime")),
        renewed_at=instant(spec.get("renewTime")),
    )


def lease_body(namespace: str, name: str, record: LeaseRecord, metadata: Raw) -> dict[str, Any]:
    """The object to create or to replace."""
    about: dict[str, Any] = {"namespace": namespace, "name": name, **metadata}
    if record.version:
        about["resourceVersion"] = record.version
    spec = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": max(1, record.duration_s),
        "leaseTransitions": record.transitions,
        "acquireTime": _stamp(record.acquired_at),
        "renewTime": _stamp(record.renewed_at),
    }
    known = {key: value for key, value in spec.items() if value is not None}
    return {"apiVersion": API, "kind": "Lease", "metadata": about, "spec": known}


def _stamp(at: datetime | None) -> str | None:
    """MicroTime, as the API writes it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if at is not None else None
