"""One worker cluster: its queues with quotas, flavors, nodes with what is free, and all copies of work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from connectors.kubernetes import decode, decode_nodes, decode_queues
from connectors.kubernetes.cache import Part
from connectors.kubernetes.client import ApiClient
from connectors.kubernetes.decode_queues import taking, with_levels
from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.feed import Feed, FeedSettings
from connectors.kubernetes.fields import Raw
from connectors.kubernetes.loads import Loads
from connectors.kubernetes.stopping import stop_call
from connectors.kubernetes.watch import Informer, Kind, Observer, T
from dispatcher.core.errors import Conflict
from dispatcher.core.ids import ClusterName
from dispatcher.core.ports import Clock, Stop, Wake
from dispatcher.core.snapshot import LocalQueueView, WorkerView

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


class KubernetesWorker:
    """`WorkerPort` over a real apiserver. Needs list and watch, nothing else (kueue-contract section 8); `stop` needs
    patch of Workloads, which an installation may give or not (deploy/worker-stop)."""

    def __init__(
        self,
        name: ClusterName,
        client: ApiClient,
        clock: Clock,
        settings: FeedSettings | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._name = name
        self._client = client
        self._feed = Feed(client, clock, settings, observer)
        self._queues = self._informer("clusterqueues", f"{KUEUE}/clusterqueues", decode_queues.queue_record)
        self._local_queues = self._informer("localqueues", f"{KUEUE}/localqueues", decode_queues.local_queue)
        self._cohorts = self._informer("cohorts", f"{KUEUE}/cohorts", decode_queues.cohort)
        self._flavors = self._informer("resourceflavors", f"{KUEUE}/resourceflavors", decode_queues.flavor)
        self._topologies = self._add(
            Kind("topologies", f"{KUEUE}/topologies", optional=True, dispensable=True), decode_queues.topology
        )
        self._copies = self._informer("workloads", f"{KUEUE}/workloads", decode.worker_copy)
        self._nodes = self._informer("nodes", "/api/v1/nodes", decode_nodes.node)
        self._pods = self._add(
            Kind("pods", "/api/v1/pods", field_selector="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"),
            decode_nodes.pod_use,
        )
        self._namespaces = self._add(
            Kind("namespaces", "/api/v1/namespaces", metadata_only=True), decode_nodes.namespace
        )
        self._loads = loads = Loads(self._nodes.cache, self._pods.cache)
        self._nodes_part = Part(
            loads.nodes,
            lambda: self._nodes.cache.revision,
            lambda: self._pods.cache.revision,
        )
        self._local_queues_part = Part(
            self._taking,
            lambda: self._local_queues.cache.revision,
            lambda: self._queues.cache.revision,
            lambda: self._namespaces.cache.revision,
        )
        self._copies_part = Part(
            lambda: loads.copies(self._copies.cache),
            lambda: self._copies.cache.revision,
            lambda: self._pods.cache.revision,
        )
        self._nothing = WorkerView(name, synced=False, observed_at=None)
        self._built: WorkerView | None = None
        feed = self._feed
        self._content_part = Part(self._content, feed.revision)
        self._view_part = Part(self._seen, feed.revision, feed.synced, feed.observed_at, feed.error)

    @property
    def name(self) -> ClusterName:
        return self._name

    async def run(self, wake: Wake) -> None:
        await self._feed.run(wake)

    def view(self) -> WorkerView:
        """Content is rebuilt only when some of it changed; age, sync and error are those of this instant.

        Before everything has been listed once there is none: half of a cluster says nothing, and is not worth building.
        """
        return self._view_part.get()

    def _seen(self) -> WorkerView:
        feed, synced = self._feed, self._feed.synced()
        if self._built is not None or synced:
            self._built = self._content_part.get()
        return replace(
            self._built or self._nothing,
            synced=synced,
            observed_at=feed.observed_at(),
            generation=feed.revision(),
            error=feed.error(),
        )

    async def stop(self, stop: Stop) -> None:
        """See `WorkerPort.stop`."""
        try:
            await self._client.once(stop_call(stop))
        except NotFound as error:
            raise Conflict(f"{stop.namespace}/{stop.name} is gone: {error}") from None

    def _content(self) -> WorkerView:
        topologies = {topology.name: topology for _, topology in self._topologies.cache.items()}
        flavors = {flavor.name: with_levels(flavor, topologies) for _, flavor in self._flavors.cache.items()}
        laid_out = {name for name, flavor in flavors.items() if flavor.topology is not None}
        records = self._copies.cache.values() if laid_out else ()
        return WorkerView(
            cluster=self._name,
            synced=False,
            observed_at=None,
            namespaces=tuple(found.name for _, found in self._namespaces.cache.items()),
            local_queues=self._local_queues_part.get(),
            queues={found.view.name: found.view for _, found in self._queues.cache.items()},
            cohorts={cohort.name: cohort for _, cohort in self._cohorts.cache.items()},
            flavors=flavors,
            nodes=self._nodes_part.get(),
            copies=self._copies_part.get(),
            astray=self._loads.astray(),
            lies=self._loads.lying(r for r in records if any(part[3] in laid_out for part in r.copy.pod_sets)),
        )

    def _taking(self) -> dict[tuple[str, str], LocalQueueView]:
        queues = {found.view.name: found for _, found in self._queues.cache.items()}
        namespaces = {found.name: dict(found.labels) for _, found in self._namespaces.cache.items()}
        return {key: taking(local, queues, namespaces) for key, local in self._local_queues.cache.items()}

    def _informer(self, name: str, path: str, projection: Callable[[Raw], T | None]) -> Informer[T]:
        return self._add(Kind(name, path), projection)

    def _add(self, kind: Kind, projection: Callable[[Raw], T | None]) -> Informer[T]:
        informer = Informer(kind, projection, self._feed.around)
        self._feed.add(informer)
        return informer
