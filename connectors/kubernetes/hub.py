"""The hub: everything that dispatch sees of it, and what is written to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from connectors.kubernetes import decode, decode_queues, preflight
from connectors.kubernetes.amendment import amendment_call
from connectors.kubernetes.cache import Part
from connectors.kubernetes.client import ApiClient, Call
from connectors.kubernetes.events import EventWriter
from connectors.kubernetes.eviction import eviction_call
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.feed import Feed, FeedSettings
from connectors.kubernetes.fields import Raw, child, children, text
from connectors.kubernetes.nomination import nomination_call, read_call, replica_call, withdrawal_call
from connectors.kubernetes.owners import OwnerWatch
from connectors.kubernetes.watch import Informer, Kind, Observer, T
from dispatcher.core.errors import Conflict, Fatal, Refused, Transient
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import Amendment, Clock, Eviction, Nomination, Notice, Wake
from dispatcher.core.snapshot import HubView
from dispatcher.core.workload import HubWorkload, OwnerMeta
from dispatcher.core.writing import UnsafeMode, WriteMode

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
LOOK_S = 30.0
"""How often a hub that does not allow the mode that was asked for is looked at again."""


class KubernetesHub:
    """`HubPort` over a real apiserver."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        settings: FeedSettings | None = None,
        observer: Observer | None = None,
        wanted: WriteMode | None = None,
    ) -> None:
        self._client = client
        self.turns = client.turns
        """Shared with the workers' clients: what all clusters bring is read by one event loop."""
        self._clock = clock
        self._wanted = wanted
        self.write_mode = wanted or WriteMode.CLEARING_POLICY
        """How nominations are written; `check_ready` finds out what this hub allows."""
        self._unsafe: str | None = None
        """Why nothing may be nominated: the mode that was asked for is not allowed any more."""
        self._looked_s = float("-inf")
        self._feed = Feed(client, clock, settings, observer)
        self._owners = OwnerWatch(self._feed, clock)
        self._workloads = self._informer("workloads", self._workload)
        self._checks = self._informer("admissionchecks", decode_queues.check)
        self._configs = self._informer("multikueueconfigs", decode_queues.multikueue_config)
        self._clusters = self._informer("multikueueclusters", decode_queues.multikueue_cluster)
        self._queues = self._informer("clusterqueues", decode_queues.hub_queue)
        self._local_queues = self._informer("localqueues", decode_queues.local_queue)
        self._needed = (
            self._workloads,
            self._checks,
            self._configs,
            self._clusters,
            self._queues,
            self._local_queues,
            *self._owners.needed,
        )
        self._events = EventWriter(client)
        self._identity: str | None = None
        self._identity_of = 0
        self._owners_part = Part(self._owners.metas, self._owners.revision)
        self._workloads_part = Part(
            self._joined_workloads, lambda: self._workloads.cache.revision, self._owners.revision
        )
        self._content_part = Part(self._content, self._feed.revision)
        self._view_part = Part(self._seen, self._feed.revision, self._synced, self._observed_at, self._feed.error)

    # --- what is seen ---

    async def check_ready(self) -> None:
        await self._settle_mode()
        await self._verify_identity()

    async def _settle_mode(self) -> None:
        self._looked_s = self._clock.monotonic_s()
        try:
            self.write_mode = await preflight.check(self._client, self._clock, self._wanted)
        except UnsafeMode as error:
            self._unsafe = f"{error}; {error.fix}"
            raise
        self._unsafe = None

    async def run(self, wake: Wake) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed.run(wake))
            group.create_task(self._owners.run())

    def view(self) -> HubView:
        """Content is rebuilt only when some of it changed; age, sync and error are those of this instant."""
        return self._view_part.get()

    def _seen(self) -> HubView:
        found = self._content_part.get()
        return replace(found, synced=self._synced(), observed_at=self._observed_at(), error=self._feed.error())

    def _synced(self) -> bool:
        return self._feed.synced(self._needed)

    def _observed_at(self) -> datetime | None:
        return self._feed.observed_at(self._needed)

    def _content(self) -> HubView:
        return HubView(
            synced=False,
            observed_at=None,
            workloads=self._workloads_part.get(),
            owners=self._owners_part.get(),
            checks={check.name: check for _, check in self._checks.cache.items()},
            configs={name: clusters for (_, name), clusters in self._configs.cache.items()},
            clusters={cluster.name: cluster for _, cluster in self._clusters.cache.items()},
            queues={queue.name: queue for _, queue in self._queues.cache.items()},
            local_queues=dict(self._local_queues.cache.items()),
        )

    def _joined_workloads(self) -> dict[WorkloadUid, HubWorkload]:
        owners = self._owners_part.get()
        found = {w.uid: w for w in self._workloads.cache.values()}
        return {uid: self._joined(found[uid], owners) for uid in sorted(found)}

    def _joined(self, workload: HubWorkload, owners: Mapping[str, OwnerMeta]) -> HubWorkload:
        """A Workload with what its owner's object adds.

        An owner that we cannot see may carry keys (data sets!) that we would then not obey: such a Workload is
        unreadable, not undeclared.
        """
        owner = workload.owner
        if workload.group_key is not None:
            workload = replace(workload, component_count=self._owners.components(workload))
        if owner is None or not owner.uid or owner.uid in owners or workload.finished or workload.problem:
            return workload
        return replace(
            workload,
            problem=f"its {owner.kind} {owner.name} ({owner.api_version}) cannot be seen: the daemon's account needs "
            "list and watch on that kind",
        )

    def _workload(self, raw: Raw) -> HubWorkload:
        found = decode.hub_workload(raw)
        self._owners.saw(found.owner)
        return found

    def _informer(self, plural: str, projection: Callable[[Raw], T | None]) -> Informer[T]:
        informer = Informer(Kind(plural, f"{KUEUE}/{plural}"), projection, self._feed.around)
        self._feed.add(informer)
        return informer

    # --- what is written ---

    async def nominate(self, nomination: Nomination) -> str:
        """See `HubPort.nominate`. The reply is taken into the view, so that the next cycle sees its own write; after a
        conflict, what overtook us is, so that whoever decides again need not wait for the watch."""
        await self._refuse_unsafe()
        plain = nomination_call(nomination)
        if self.write_mode is WriteMode.FULL_REPLICA:
            return await self._write(nomination, replica_call(nomination, await self._newest(nomination)))
        try:
            return await self._write(nomination, plain)
        except Conflict:
            if self._shows_what_it_was(nomination):
                with contextlib.suppress(Conflict, Transient, Refused):
                    self._workloads.offer(await self._newest(nomination))
            raise

    async def _refuse_unsafe(self) -> None:
        """Whoever asks for one mode gets no other. Where the hub was found not to allow it any more, each job that is
        nominated would run where the hub never learns of it (FR-NOM-01): so none is, until a look finds it allowed."""
        if self._unsafe is None:
            return
        if self._clock.monotonic_s() - self._looked_s >= LOOK_S:
            with contextlib.suppress(Fatal, Transient):
                await self._settle_mode()
                return
        raise Refused(self._unsafe)

    def _shows_what_it_was(self, nomination: Nomination) -> bool:
        """Whether the watch has not brought yet what a write conflicted with: mostly it is faster than the answer."""
        held = self._workloads.cache.get((nomination.namespace, nomination.name))
        return held is not None and held.uid == nomination.uid and held.resource_version == nomination.resource_version

    async def _newest(self, nomination: Nomination) -> Raw:
        """The Workload as the hub has it now."""
        items = tuple(children(await self._client.once(read_call(nomination)), "items"))
        if not items:
            raise Conflict(f"{nomination.namespace}/{nomination.name} is gone")
        return items[0]

    async def withdraw(self, nomination: Nomination) -> str:
        """See `HubPort.withdraw`."""
        return await self._write(nomination, withdrawal_call(nomination))

    async def evict(self, eviction: Eviction, now: datetime) -> str:
        """See `HubPort.evict`."""
        return await self._write(eviction, eviction_call(eviction, now))

    async def amend(self, amendment: Amendment) -> str:
        """See `HubPort.amend`."""
        return await self._write(amendment, amendment_call(amendment))

    async def _write(self, what: Nomination | Eviction | Amendment, call: Call) -> str:
        await self._verify_identity()
        try:
            written = await self._client.once(call)
        except NotFound as error:
            raise Conflict(f"{what.namespace}/{what.name} is gone: {error}") from None
        version = text(child(written, "metadata"), "resourceVersion")
        if not version:
            raise Transient("the hub's answer to a write has no resourceVersion")
        self._workloads.offer(written)
        return version

    async def notify(self, notice: Notice) -> None:
        """See `HubPort.notify`."""
        try:
            await self._events.write(notice, self._clock.now())
        except Conflict as error:
            raise Transient(f"the Event was changed at the same time: {error}") from None

    async def get_secret(self, namespace: str, name: str) -> Raw:
        """One Secret of the hub, for the kubeconfigs of workers."""
        return await self._client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")

    async def close(self) -> None:
        """Close all connections; for those who never call `run`."""
        await self._client.close()

    async def _verify_identity(self) -> None:
        """Before a write, whenever the access has changed: is this still the cluster that we decided for (FR-AUT-01)?

        Raises:
            Refused: it is another one, or it no longer says which one it is.
        """
        if self._identity_of == self._client.generation and self._identity_of:
            return
        found = await self._client.identity()
        if self._identity is not None and found != self._identity:
            raise Refused("the hub's address now leads to another cluster than at start: nothing is written to it")
        self._identity, self._identity_of = found, self._client.generation
