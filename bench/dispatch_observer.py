"""What happened, seen by an observer of the bench's own: watches on hub and workers, and the apiservers' counters.

It asks nothing of a contender, so every contender is seen alike. Times are those of the event's arrival here, on one
monotonic clock; conditions on the objects have a resolution of a second.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.dispatch_fleet import WORKLOADS
from tests.fleet import Endpoint, LocalFleet

COUNTED = frozenset({"workloads", "jobs", "pods", "events"})
"""Resources whose writes are counted: what a job causes. Leases and nodes go on without any job."""
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})


@dataclass(slots=True)
class Timeline:
    """When the observer first saw a Workload of the hub in each state, in seconds of the monotonic clock."""

    job: str
    seen_s: dict[str, float] = field(default_factory=dict)

    def between(self, begin: str, end: str) -> float | None:
        if begin not in self.seen_s or end not in self.seen_s:
            return None
        return self.seen_s[end] - self.seen_s[begin]


def states_of(workload: Mapping[str, Any]) -> frozenset[str]:
    """The states that one version of a hub Workload shows."""
    status = workload.get("status", {})
    states = {c["type"].lower() for c in status.get("conditions", []) if c["status"] == "True"}
    if any(check["state"] == "Pending" for check in status.get("admissionChecks", [])):
        states.add("pending")
    if status.get("nominatedClusterNames"):
        states.add("nominated")
    if status.get("clusterName"):
        states.add("placed")
    return frozenset({"created", *states})


class Observer:
    """Watches from `start` to `stop`; `timelines` and `copies` may be read at any time."""

    def __init__(self, fleet: LocalFleet) -> None:
        self.timelines: dict[str, Timeline] = {}
        self.copies: Counter[str] = Counter()
        self.hub_versions = 0
        self._endpoints = {"hub": fleet.hub, **fleet.workers}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._clients = {name: client_of(endpoint) for name, endpoint in self._endpoints.items()}
        self._threads = [
            threading.Thread(target=self._watch, args=(name,), name=f"watch-{name}") for name in self._endpoints
        ]

    def __enter__(self) -> Observer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=15.0)
        for client in self._clients.values():
            client.close()

    def count(self, jobs: Iterable[str], *states: str) -> int:
        """How many of these jobs have been seen in one of the states."""
        wanted = set(jobs)
        with self._lock:
            return sum(t.job in wanted and not t.seen_s.keys().isdisjoint(states) for t in self.timelines.values())

    def of(self, jobs: Iterable[str]) -> list[Timeline]:
        wanted = set(jobs)
        with self._lock:
            return sorted((t for t in self.timelines.values() if t.job in wanted), key=lambda t: t.job)

    def _watch(self, name: str) -> None:
        for line, at_s in self._lines(self._clients[name]):
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                with self._lock:
                    self._note(name, event, at_s)

    def _note(self, name: str, event: Mapping[str, Any], at_s: float) -> None:
        workload = event["object"]
        metadata = workload["metadata"]
        if name != "hub":
            self.copies[metadata["name"]] += event["type"] == "ADDED"
            return
        self.hub_versions += 1
        owners = metadata.get("ownerReferences") or [{"name": metadata["name"]}]
        timeline = self.timelines.setdefault(metadata["uid"], Timeline(owners[0]["name"]))
        for state in states_of(workload):
            timeline.seen_s.setdefault(state, at_s)

    def _lines(self, client: httpx.Client) -> Iterator[tuple[str, float]]:
        """Watch events until stopped. A read that times out is a quiet second, in which to look whether to stop."""
        version = client.get(WORKLOADS).raise_for_status().json()["metadata"]["resourceVersion"]
        while not self._stopping.is_set():
            query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "5"}
            with client.stream("GET", WORKLOADS, params=query) as stream:
                for line in stream.iter_lines():
                    at_s = time.monotonic()
                    if line:
                        yield line, at_s
                        version = json.loads(line)["object"]["metadata"]["resourceVersion"]


def client_of(endpoint: Endpoint) -> httpx.Client:
    """A client as the administrator of one cluster."""
    return httpx.Client(
        base_url=endpoint.server_url,
        headers={"Authorization": f"Bearer {endpoint.token}"},
        verify=ssl.create_default_context(cadata=endpoint.ca_pem.decode()),
        timeout=30.0,
        trust_env=False,
    )


Requests = Counter[tuple[str, str, str]]
"""Requests by cluster, verb and resource."""


def requests_of(fleet: LocalFleet) -> Requests:
    """What every apiserver of the fleet has served so far, whoever asked."""
    found: Requests = Counter()
    for name, endpoint in {"hub": fleet.hub, **fleet.workers}.items():
        with client_of(endpoint) as client:
            for (verb, resource), number in parse_requests(client.get("/metrics").raise_for_status().text).items():
                found[name, verb, resource] = number
    return found


def parse_requests(text: str) -> Counter[tuple[str, str]]:
    """Requests by verb and resource, from an apiserver's metrics; subresources count as their resource."""
    found: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        if line.startswith("apiserver_request_total{"):
            inside, _, number = line.removeprefix("apiserver_request_total{").rpartition("} ")
            labels = dict(pair.split("=", 1) for pair in inside.split(",") if "=" in pair)
            found[labels["verb"].strip('"'), labels["resource"].strip('"')] += int(float(number))
    return found


def writes(requests: Requests, *, on_hub: bool) -> int:
    """Writes of counted resources, on the hub or on all workers together."""
    return sum(
        number
        for (name, verb, resource), number in requests.items()
        if (name == "hub") == on_hub and verb in WRITES and resource in COUNTED
    )


def looks(requests: Requests) -> int:
    """MultiKueue's reads of Workloads on all workers together: nobody else reads single ones there."""
    return requests_on_workers(requests, "GET", "workloads")


def requests_on_workers(requests: Requests, verb: str, resource: str) -> int:
    return sum(n for (name, v, r), n in requests.items() if name != "hub" and (v, r) == (verb, resource))
