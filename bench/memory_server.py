"""Apiservers that hold nothing: lists and watches of a large fleet, made as they are asked for.

One process serves all clusters, each below a path of its own, over TLS like a real one. It makes each page from
templates, so that what is measured is the daemon and not the memory of a fake.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from bench import memory_objects as objects
from bench.memory_objects import Fields, Raw, Template
from tests.connectors.support import authority, kubeconfig, server_context

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
PODS = "/api/v1/pods"
CHURN = "/bench/churn"
CHANGED = 10
"""One pod of so many changes when a change is asked for."""


@dataclass(frozen=True, slots=True)
class Size:
    workers: int
    nodes: int
    pods: int
    workloads: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"w{number:02d}" for number in range(self.workers))


class Collection(Protocol):
    @property
    def count(self) -> int: ...

    def item(self, number: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Many:
    """Objects of one template, made when they are asked for. `later` is added to their versions."""

    template: Template
    fields: Fields
    count: int

    def item(self, number: int, later: int = 0) -> bytes:
        fields = self.fields(number)
        return self.template.fill({**fields, "version": fields["version"] + later})


@dataclass(frozen=True, slots=True)
class Few:
    """Objects that are written out."""

    texts: tuple[bytes, ...]

    @property
    def count(self) -> int:
        return len(self.texts)

    def item(self, number: int) -> bytes:
        return self.texts[number]


def worker_collections(name: str, size: Size) -> Mapping[str, Collection]:
    running = size.pods // objects.PODS_OF_A_JOB
    return {
        PODS: Many(POD, objects.pod_fields(name), size.pods),
        "/api/v1/nodes": Many(NODE, objects.node_fields(name), size.nodes),
        f"{KUEUE}/workloads": Many(RUNNING, objects.workload_fields(name), running),
        **_plain(worker_plain(name, size)),
    }


def hub_collections(size: Size) -> Mapping[str, Collection]:
    return {
        f"{KUEUE}/workloads": Many(WAITING, objects.workload_fields("hub"), size.workloads),
        "/apis/batch/v1/jobs": Many(JOB, objects.job_fields("hub"), size.workloads),
        **_plain(hub_plain(size)),
    }


POD, NODE, JOB = Template(objects.pod()), Template(objects.node()), Template(objects.job())
RUNNING, WAITING = Template(objects.workload(waits=False)), Template(objects.workload(waits=True))


def _plain(found: Mapping[str, list[Raw]]) -> dict[str, Collection]:
    return {path: Few(tuple(json.dumps(item).encode() for item in items)) for path, items in found.items()}


def _named(name: str, spec: Raw | None = None, status: Raw | None = None, **meta: Any) -> Raw:
    own = {"name": name, "uid": f"uid-{name}", "resourceVersion": "9", "managedFields": objects.managed_fields("kueue")}
    return {"metadata": {**own, **meta}, "spec": spec or {}, "status": status or {}}


_ACTIVE = {"conditions": [objects.condition("Active")]}


def worker_plain(name: str, size: Size) -> dict[str, list[Raw]]:
    total = {"cpu": str(size.nodes * 191), "memory": f"{size.nodes * 2000}Gi", "nvidia.com/gpu": str(size.nodes * 8)}
    used = {"cpu": str(size.pods * 12), "memory": f"{size.pods * 96}Gi", "nvidia.com/gpu": str(size.pods)}
    quota = {"name": "h100", "resources": [{"name": k, "nominalQuota": v} for k, v in total.items()]}
    taken = {"name": "h100", "resources": [{"name": k, "total": v} for k, v in used.items()]}
    groups = [{"coveredResources": list(total), "flavors": [quota]}]
    labels = {"nodeLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
    return {
        f"{KUEUE}/clusterqueues": [
            _named("training", {"resourceGroups": groups}, {**_ACTIVE, "flavorsReservation": [taken]})
        ],
        f"{KUEUE}/localqueues": [_named("main", {"clusterQueue": "training"}, _ACTIVE, namespace="team")],
        f"{KUEUE}/cohorts": [],
        f"{KUEUE}/resourceflavors": [_named("h100", labels)],
        "/api/v1/namespaces": [_named("team"), *(_named(f"team-{n}") for n in range(49))],
    }


def hub_plain(size: Size) -> dict[str, list[Raw]]:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "fleet"}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    queue = {"admissionChecksStrategy": {"admissionChecks": [{"name": "fleet"}]}}
    return {
        f"{KUEUE}/admissionchecks": [_named("fleet", check, _ACTIVE)],
        f"{KUEUE}/multikueueconfigs": [_named("fleet", {"clusters": list(size.names)})],
        f"{KUEUE}/multikueueclusters": [_named(name, {}, _ACTIVE) for name in size.names],
        f"{KUEUE}/clusterqueues": [_named("training", queue, _ACTIVE)],
        f"{KUEUE}/localqueues": [_named("main", {"clusterQueue": "training"}, _ACTIVE, namespace="team")],
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets": [],
    }


class Server:
    """All clusters of a fleet; `start` puts a kubeconfig of each into a folder."""

    def __init__(self, size: Size) -> None:
        self._collections = {name: worker_collections(name, size) for name in size.names}
        self._collections["hub"] = hub_collections(size)
        self._open: dict[str, list[web.StreamResponse]] = {name: [] for name in self._collections}

    async def start(self, folder: Path) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{cluster}/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(authority()))
        await site.start()
        port = runner.addresses[0][1]
        for name in self._collections:
            content = kubeconfig(f"https://127.0.0.1:{port}/{name}", authority(), "t0")
            (folder / f"{name}.kubeconfig").write_bytes(content)
        return runner

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        cluster, path = request.match_info["cluster"], f"/{request.match_info['path']}"
        if path == CHURN:
            return await self._change(cluster)
        found = self._collections[cluster].get(path)
        if found is None:
            return web.json_response({"message": f"{path} not found"}, status=404)
        if request.query.get("watch") == "true":
            return await self._watch(request, cluster, found)
        return _page(found, int(request.query.get("limit", "500")), int(request.query.get("continue", "0")))

    async def _change(self, cluster: str) -> web.Response:
        """Tell those who watch pods that some of them changed."""
        pods = self._collections[cluster][PODS]
        assert isinstance(pods, Many)
        for response in self._open[cluster]:
            for number in range(0, pods.count, CHANGED):
                await response.write(b'{"type":"MODIFIED","object":' + pods.item(number, later=10**6) + b"}\n")
        return web.json_response({})

    async def _watch(self, request: web.Request, cluster: str, found: Collection) -> web.StreamResponse:
        """Silent but for the changes that were asked for, and ended when the client wants it to be."""
        response = web.StreamResponse()
        await response.prepare(request)
        watchers = self._open[cluster] if found is self._collections[cluster].get(PODS) else []
        watchers.append(response)
        try:
            await asyncio.sleep(float(request.query["timeoutSeconds"]))
        finally:
            watchers.remove(response)
        return response


def _page(found: Collection, limit: int, start: int) -> web.Response:
    end = min(start + limit, found.count)
    token = str(end) if end < found.count else ""
    head = json.dumps({"kind": "List", "metadata": {"resourceVersion": "1900000", "continue": token}})
    items = b",".join(found.item(number) for number in range(start, end))
    return web.Response(body=head[:-1].encode() + b',"items":[' + items + b"]}", content_type="application/json")
