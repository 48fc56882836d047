"""Watches the job objects behind Workloads: metadata only, of whatever kinds turn up.

Jobs and JobSets are watched from the start. Any other kind (RayJob, TrainJob, an external framework's ...) is watched
once a Workload names one as its owner, so that no list of frameworks has to be kept here and absent ones cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from connectors.kubernetes.decode import MULTI_WORKLOAD_KIND, OwnerRecord, owner_record
from connectors.kubernetes.feed import Feed
from connectors.kubernetes.fields import children, text
from connectors.kubernetes.watch import Informer, Kind
from dispatcher.core.errors import EntrepotError, Refused
from dispatcher.core.ports import Clock
from dispatcher.core.workload import HubWorkload, Owner, OwnerMeta
from dispatcher.logs import get_logger

OwnerKind = tuple[str, str]
"""(apiVersion, kind)."""

JOB: OwnerKind = ("batch/v1", "Job")
JOBSET: OwnerKind = ("jobset.x-k8s.io/v1alpha2", "JobSet")
_RETRY_S = 300.0


class OwnerWatch:
    """Informers by owner kind. Only those of Job and JobSet count for the hub's sync: others come as they come, and a
    Workload whose owner is not in `metas` yet is not decided on meanwhile."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self._feed = feed
        self._clock = clock
        self._informers: dict[OwnerKind, Informer[OwnerRecord]] = {}
        self._wanted: dict[OwnerKind, None] = {}
        self._news = asyncio.Event()
        self.needed = (self._start(JOB, "jobs", optional=False), self._start(JOBSET, "jobsets", optional=True))

    def saw(self, owner: Owner | None) -> None:
        """A Workload has this owner: its kind is watched from now on."""
        if owner is None:
            return
        kind = (owner.api_version, owner.kind)
        if kind not in self._informers and kind not in self._wanted:
            self._wanted[kind] = None
            self._news.set()

    def revision(self) -> int:
        return sum(informer.cache.revision for informer in self._informers.values())

    def metas(self) -> dict[str, OwnerMeta]:
        """Metadata by owner uid, sorted."""
        found = {r.meta.uid: r.meta for informer in self._informers.values() for r in informer.cache.values()}
        return {uid: found[uid] for uid in sorted(found)}

    def components(self, workload: HubWorkload) -> int | None:
        """How many Workloads the owner of a multi-workload kind makes; None while its object is not seen."""
        owner = workload.owner
        informer = self._informers.get((owner.api_version, owner.kind)) if owner is not None else None
        record = informer.cache.get((workload.namespace, owner.name)) if informer is not None and owner else None
        return record.components if record is not None else None

    async def run(self) -> None:
        """Find out how newly seen kinds are called in URLs, and watch them; those not served are tried again later."""
        while True:
            await self._news.wait()
            self._news.clear()
            for kind in sorted(self._wanted):
                if await self._discover(kind):
                    del self._wanted[kind]
            if self._wanted:
                await self._clock.sleep(_RETRY_S)
                self._news.set()

    async def _discover(self, kind: OwnerKind) -> bool:
        api_version, name = kind
        prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            served = await self._feed.client.get(prefix)
        except EntrepotError as error:
            log = get_logger().info if isinstance(error, Refused) else get_logger().warning
            log("owner_kind_not_served", kind=name, api_version=api_version, error=str(error))
            return False
        for resource in children(served, "resources"):
            if text(resource, "kind") == name and "/" not in text(resource, "name"):
                self._start(kind, text(resource, "name"), optional=True)
                return True
        return False

    def _start(self, kind: OwnerKind, plural: str, *, optional: bool) -> Informer[OwnerRecord]:
        api_version, name = kind
        prefix = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        # The number of components stands in the spec, so this one kind is read whole.
        watched = Kind(plural, f"{prefix}/{plural}", metadata_only=name != MULTI_WORKLOAD_KIND, optional=optional)
        decode: Callable[..., OwnerRecord] = partial(owner_record, kind=name)
        informer = Informer(watched, decode, self._feed.around)
        self._informers[kind] = informer
        self._feed.add(informer)
        return informer
