"""Requests that were built before, for as long as nothing that they are built of has changed."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dispatcher.core.history import NO_HISTORY, Usual, usual_of
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import HubView
from dispatcher.core.workload import Avoided, HubWorkload, OwnerMeta, Request


class _Built(NamedTuple):
    workload: HubWorkload
    owner: OwnerMeta | None
    request: Request


@dataclass(slots=True)
class Requests:
    """One request per waiting workload. The same object for the same inputs, by which the memo knows it again."""

    _known: dict[WorkloadUid, _Built] = field(default_factory=dict)
    _hub: tuple[object, ...] = ()
    _policy: Policy | None = None
    _usual: Usual = field(default_factory=lambda: NO_HISTORY)

    def valid_for(self, hub: HubView, policy: Policy, usual: Usual) -> None:
        """Forget all where the policy, or what else `build_request` reads of the hub, has become other, and those who
        are taken to run for another time than before."""
        parts = (hub.checks, hub.configs, hub.queues, hub.local_queues)
        if policy is not self._policy or parts != self._hub:
            self._known.clear()
        if usual is not self._usual:
            for uid in [
                uid for uid, known in self._known.items() if known.request.usual != usual_of(known.request, usual)
            ]:
                del self._known[uid]
        self._usual = usual
        self._hub, self._policy = parts, policy

    def get(self, workload: HubWorkload, owner: OwnerMeta | None, avoided: tuple[Avoided, ...]) -> Request | None:
        known = self._known.get(workload.uid)
        if known is None or known.request.avoided != avoided:
            return None
        same = known.workload is workload or known.workload == workload
        return known.request if same and (known.owner is owner or known.owner == owner) else None

    def put(self, workload: HubWorkload, owner: OwnerMeta | None, request: Request) -> Request:
        request = replace(request, usual=usual_of(request, self._usual))
        self._known[workload.uid] = _Built(workload, owner, request)
        return request

    def renumbered(self, request: Request, attempt: int) -> Request:
        """The same request in another attempt."""
        made, known = replace(request, attempt=attempt), self._known.get(request.uid)
        if known is not None:
            self._known[request.uid] = known._replace(request=made)
        return made

    def keep(self, alive: Container[WorkloadUid]) -> None:
        for uid in [uid for uid in self._known if uid not in alive]:
            del self._known[uid]
