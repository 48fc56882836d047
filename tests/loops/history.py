"""A history (tests/local/observer.py) of the embedded fleet, so that the same laws judge both fleets.

The embedded world keeps no versions over all clusters; its instants are put in the order in which the daemon could see
them: what the workers show before what the hub shows, and both before the daemon's next cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dispatcher.core.workload import HubWorkload
from tests.builders import GPU
from tests.local.laws import Listed, Room, room_of
from tests.local.observer import HUB, PRODUCT, Change, Key, Seen, WorkloadSeen
from tests.loops.bench import Bench, example_plan

KINDS = {"ResourceFlavor": "resourceflavors", "ClusterQueue": "clusterqueues", "LocalQueue": "localqueues"}


@dataclass(slots=True)
class History:
    """Looks at a bench's truth whenever asked, and keeps what has changed."""

    bench: Bench
    manifests: Mapping[str, Mapping[str, Any]]
    """The jobs that were submitted, by name."""
    changes: list[Change] = field(default_factory=list)
    _last: dict[tuple[str, Key, str], Seen] = field(default_factory=dict)

    def look(self) -> None:
        found: dict[tuple[str, Key, str], Seen] = {}
        by_key: dict[Key, WorkloadSeen] = {}
        hub = {w.uid: w for w in self.bench.fleet.hub_view().workloads.values()}
        for uid, workload in hub.items():
            seen = self._workload(workload)
            by_key[workload.namespace, workload.name] = seen
            found[HUB, (workload.namespace, workload.name), uid] = seen
        for name, view in sorted(self.bench.state.worker_views().items()):
            for key, copy in view.copies.items():
                if copy.ours and key in by_key:
                    found[str(name), key, f"{name}/{key}"] = _copy(by_key[key], copy)
        for at in sorted({*found, *self._last}, key=lambda at: (at[0] == HUB, at)):
            if found.get(at) != self._last.get(at):
                cluster, key, uid = at
                self.changes.append(Change(len(self.changes), cluster, "workloads", key, uid, found.get(at)))
        self._last = found

    def _workload(self, workload: HubWorkload) -> WorkloadSeen:
        job = workload.owner.name if workload.owner is not None else workload.name
        spec = self.manifests[job]["spec"]
        template = spec["template"]["spec"]
        gpus = int(template["containers"][0]["resources"]["requests"].get(GPU, 0)) * int(spec["parallelism"])
        return WorkloadSeen(
            job=job,
            queue=workload.local_queue,
            product=template["nodeSelector"][PRODUCT],
            gpus=gpus,
            nominated=tuple(str(name) for name in workload.nominated),
            cluster=str(workload.cluster_name or ""),
            active=workload.active and not workload.deleting,
            reserved=workload.quota_reserved_at is not None,
            admitted=workload.admitted_at is not None,
            evicted=workload.evicted_at is not None,
            finished=workload.finished,
        )


def _copy(of: WorkloadSeen, copy: Any) -> WorkloadSeen:
    return WorkloadSeen(
        job=of.job,
        queue=of.queue,
        product=of.product,
        gpus=of.gpus,
        nominated=(),
        cluster="",
        active=True,
        reserved=copy.quota_reserved_at is not None,
        admitted=copy.admitted_at is not None,
        evicted=copy.evicted_at is not None,
        finished=copy.finished,
    )


def example_room() -> Room:
    """What the example blueprint's clusters offer, from the manifests that `render` makes for them."""
    rendered = example_plan()
    workers: dict[str, Listed] = {}
    for name, objects in rendered.workers.items():
        listed: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for manifest in objects:
            if manifest["kind"] in KINDS:
                listed[KINDS[manifest["kind"]]].append(manifest)
        listed["nodes"] = [
            {"metadata": {"labels": dict(n.labels)}, "status": {"allocatable": dict(n.capacity)}}
            for n in rendered.nodes[name]
        ]
        workers[str(name)] = listed
    return room_of(workers)
