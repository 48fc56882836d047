"""Everything that happens on a local fleet, in the order in which it happened.

All clusters of a local fleet keep their objects in one etcd, so the resourceVersion of an object is one counter over
the whole fleet: a worker's "finished" and the hub's next nomination can be put in order without any clock. An observer
watches Workloads on the hub, and Workloads, Jobs and pods on the workers, and keeps each change; laws (laws.py) are
judged on that history, at each change rather than at the end only.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.fleet import LocalFleet
from tests.fleet.fleet import Endpoint

HUB = "hub"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
PATHS = {"workloads": f"{KUEUE}/workloads", "jobs": "/apis/batch/v1/jobs", "pods": "/api/v1/pods"}
PRODUCT = "nvidia.com/gpu.product"
GPU = "nvidia.com/gpu"
PAUSE_S = 0.1
QUIET_S = 4.0
Raw = Mapping[str, Any]
Key = tuple[str, str]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class WorkloadSeen:
    """A Workload as a law needs it, on the hub or on a worker. `gpus` is of the whole Workload, of one product."""

    job: str
    queue: str
    product: str
    gpus: int
    nominated: tuple[str, ...]
    cluster: str
    active: bool
    reserved: bool
    admitted: bool
    evicted: bool
    finished: bool


@dataclass(frozen=True, slots=True)
class JobSeen:
    pods: int
    ended: bool


@dataclass(frozen=True, slots=True)
class PodSeen:
    job: str
    node: str
    phase: str


Seen = WorkloadSeen | JobSeen | PodSeen


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One object as it was written at `revision`; `seen` None = deleted then."""

    revision: int
    cluster: str
    kind: str
    key: Key
    uid: str = field(compare=False)
    seen: Seen | None = field(compare=False)


class Observer:
    """Watches a fleet from `__enter__` on. `changes` may be asked at any time."""

    def __init__(self, fleet: LocalFleet) -> None:
        self._fleet = fleet
        self._lock = threading.Lock()
        self._changes: list[Change] = []
        self._newest: dict[tuple[str, str], dict[str, Change]] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.gaps: list[tuple[int, int]] = []
        """From revision to revision: a kind had to be listed anew, since its server had forgotten what came between."""

    def __enter__(self) -> Observer:
        watched = [(self._fleet.hub, HUB, "workloads")]
        watched += [(e, name, kind) for name, e in sorted(self._fleet.workers.items()) for kind in PATHS]
        listed = [threading.Event() for _ in watched]
        for (endpoint, name, kind), ready in zip(watched, listed, strict=True):
            watch = _Watch(endpoint, name, kind, self)
            thread = threading.Thread(target=watch.run, args=(ready,), name=f"watch {name} {kind}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for (_, name, kind), ready in zip(watched, listed, strict=True):
            assert ready.wait(30), f"{kind} of {name} could not be listed"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=QUIET_S + 2)

    def changes(self) -> list[Change]:
        """All so far, in the order of the fleet's store."""
        with self._lock:
            return list(self._changes)

    def newest(self, cluster: str, kind: str) -> list[Change]:
        """The newest change of each object of a kind that is there."""
        with self._lock:
            return [change for change in self._newest.get((cluster, kind), {}).values() if change.seen is not None]

    def settle(self, quiet_s: float = 3.0, within_s: float = 60.0) -> None:
        """Wait until nothing has changed for `quiet_s`: what was done last has then arrived here, too."""
        deadline, known, since = time.monotonic() + within_s, -1, time.monotonic()
        while time.monotonic() < deadline:
            with self._lock:
                count = len(self._changes)
            if count != known:
                known, since = count, time.monotonic()
            elif time.monotonic() - since > quiet_s:
                return
            time.sleep(0.2)

    # --- for watches ---

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def pause(self) -> None:
        self._stop.wait(PAUSE_S)

    def add(self, change: Change) -> None:
        with self._lock:
            last = self._newest.setdefault((change.cluster, change.kind), {})
            if change.uid not in last or last[change.uid].revision < change.revision:
                last[change.uid] = change
            if not self._changes or change > self._changes[-1]:
                self._changes.append(change)
                return
            at = bisect.bisect_left(self._changes, change)
            if at == len(self._changes) or self._changes[at] != change:
                self._changes.insert(at, change)


class _Watch:
    """One kind of one cluster. Goes on from the last change after a break, so that nothing between is missed."""

    def __init__(self, endpoint: Endpoint, cluster: str, kind: str, observer: Observer) -> None:
        self._endpoint = endpoint
        self._cluster = cluster
        self._kind = kind
        self._observer = observer
        self._known: dict[Key, str] = {}
        self._version = ""
        self._gap_from: int | None = None
        projections: dict[str, Callable[[Raw], Seen]] = {"workloads": _workload, "jobs": _job, "pods": _pod}
        self._project = projections[kind]

    def run(self, ready: threading.Event) -> None:
        context = ssl.create_default_context(cadata=self._endpoint.ca_pem.decode())
        headers = {"Authorization": f"Bearer {self._endpoint.token}"}
        client = httpx.Client(base_url=self._endpoint.server_url, headers=headers, verify=context, trust_env=False)
        with client:
            while not self._observer.stopped:
                with contextlib.suppress(httpx.HTTPError, ValueError):
                    if not self._version:
                        self._list(client)
                        ready.set()
                    self._follow(client)
                self._observer.pause()

    def _list(self, client: httpx.Client) -> None:
        answer = client.get(PATHS[self._kind], timeout=20.0)
        answer.raise_for_status()
        listed = answer.json()
        version = listed["metadata"]["resourceVersion"]
        present = set()
        for raw in listed["items"]:
            present.add(_key(raw))
            self._take(raw, gone=False)
        for key in [key for key in self._known if key not in present]:
            gone = Change(int(version), self._cluster, self._kind, key, self._known.pop(key), None)
            self._observer.add(gone)
        self._version = version
        if self._gap_from is not None:
            self._observer.gaps.append((self._gap_from, int(version)))
            self._gap_from = None

    def _follow(self, client: httpx.Client) -> None:
        query = {"watch": "true", "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        # A quiet kind is asked anew every few seconds, so that the end of the observer is noticed.
        timeout = httpx.Timeout(10.0, read=QUIET_S)
        with client.stream("GET", PATHS[self._kind], params=query, timeout=timeout) as answer:
            if answer.status_code == 410:
                self._forgotten()
                return
            answer.raise_for_status()
            for line in answer.iter_lines():
                if self._observer.stopped:
                    return
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self._forgotten()
                    return
                if event["type"] != "BOOKMARK":
                    self._take(event["object"], gone=event["type"] == "DELETED")
                self._version = event["object"]["metadata"]["resourceVersion"]

    def _forgotten(self) -> None:
        self._gap_from, self._version = int(self._version), ""

    def _take(self, raw: Raw, *, gone: bool) -> None:
        meta, key = raw["metadata"], _key(raw)
        if gone:
            self._known.pop(key, None)
        else:
            self._known[key] = meta["uid"]
        seen = None if gone else self._project(raw)
        self._observer.add(Change(int(meta["resourceVersion"]), self._cluster, self._kind, key, str(meta["uid"]), seen))


def _key(raw: Raw) -> Key:
    return str(raw["metadata"].get("namespace", "")), str(raw["metadata"]["name"])


def _workload(raw: Raw) -> WorkloadSeen:
    spec, status = raw["spec"], raw.get("status") or {}
    conditions = {c["type"]: c["status"] == "True" for c in status.get("conditions") or []}
    owners = raw["metadata"].get("ownerReferences") or [{"name": raw["metadata"]["name"]}]
    product, gpus = "", 0
    for pods in spec["podSets"]:
        template = pods["template"]["spec"]
        each = sum(int(c.get("resources", {}).get("requests", {}).get(GPU, 0)) for c in template["containers"])
        if each:
            product, gpus = template.get("nodeSelector", {}).get(PRODUCT, ""), gpus + each * int(pods["count"])
    return WorkloadSeen(
        job=owners[0]["name"],
        queue=spec.get("queueName", ""),
        product=product,
        gpus=gpus,
        nominated=tuple(status.get("nominatedClusterNames") or ()),
        cluster=status.get("clusterName") or "",
        active=spec.get("active", True) is not False and "deletionTimestamp" not in raw["metadata"],
        reserved=conditions.get("QuotaReserved", False),
        admitted=conditions.get("Admitted", False),
        evicted=conditions.get("Evicted", False),
        finished=conditions.get("Finished", False),
    )


def _job(raw: Raw) -> JobSeen:
    conditions = {c["type"] for c in raw.get("status", {}).get("conditions") or [] if c["status"] == "True"}
    return JobSeen(int(raw["spec"].get("completions") or 1), bool(conditions & {"Complete", "Failed"}))


def _pod(raw: Raw) -> PodSeen:
    labels = raw["metadata"].get("labels") or {}
    return PodSeen(
        labels.get("batch.kubernetes.io/job-name", ""),
        raw["spec"].get("nodeName", ""),
        raw.get("status", {}).get("phase", ""),
    )
