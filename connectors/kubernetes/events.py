"""Events on hub Workloads, in the form that `kubectl describe workload` shows.

One Event object for each (workload, type, reason, message): its name is derived from them, so that a repeat counts up
the same object, after a restart of the daemon too, and a flood cannot fill the store.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from connectors.kubernetes.client import MERGE_PATCH, ApiClient, Call
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw, integer
from dispatcher.core.errors import Conflict
from dispatcher.core.ports import Notice

COMPONENT = "entrepot"
MESSAGE_BYTES = 1024
"""The API's own limit for an Event's message."""
_REMEMBERED = 4096


def cut(message: str, limit: int = MESSAGE_BYTES) -> str:
    """At most `limit` bytes of UTF-8, cut between two characters, with an ellipsis where something is missing."""
    encoded = message.encode()
    if len(encoded) <= limit:
        return message
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


def event_name(notice: Notice) -> str:
    """The same notice gives the same name: workload name (cut), then a hash of everything that makes it this one."""
    parts = (notice.uid, notice.type, notice.reason, cut(notice.message))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    return f"{notice.name[:200].rstrip('.-')}.{digest}"


class EventWriter:
    """Writes notices. Remembers what it wrote, to save a read for each repeat; forgetting costs only that read."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._counts: dict[str, int] = {}

    async def write(self, notice: Notice, now: datetime) -> None:
        """Create the Event, or count it up. Raises Transient or Refused."""
        name = event_name(notice)
        path = f"/api/v1/namespaces/{quote(notice.namespace, safe='')}/events"
        key = f"{notice.namespace}/{name}"
        count = self._counts.get(key)
        if count is None:
            try:
                await self._client.once(Call("POST", path, body=event_body(notice, now)))
                self._remember(key, 1)
                return
            except Conflict:
                count = integer(await self._client.get(f"{path}/{name}"), "count", 1)
        try:
            await self._client.once(
                Call(
                    "PATCH",
                    f"{path}/{name}",
                    body={"count": count + 1, "lastTimestamp": _stamp(now)},
                    content_type=MERGE_PATCH,
                )
            )
            self._remember(key, count + 1)
        except NotFound:
            # It reached the end of its life (an hour by default) since we wrote it.
            self._counts.pop(key, None)
            await self._client.once(Call("POST", path, body=event_body(notice, now)))
            self._remember(key, 1)

    def _remember(self, key: str, count: int) -> None:
        self._counts.pop(key, None)
        self._counts[key] = count
        while len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]


def event_body(notice: Notice, now: datetime) -> Raw:
    """A core/v1 Event; events.k8s.io shows the same object."""
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(notice), "namespace": notice.namespace},
        "involvedObject": {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "namespace": notice.namespace,
            "name": notice.name,
            "uid": notice.uid,
        },
        "type": notice.type.value,
        "reason": notice.reason,
        "message": cut(notice.message),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": _stamp(now),
        "lastTimestamp": _stamp(now),
        "count": 1,
    }
    return body


def _stamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
