"""A small apiserver in this process, over real TLS on loopback: list with pages, watch, get, post, merge-patch.

It keeps what a test puts in, versions it like etcd does, and misbehaves on demand. It knows nothing of Kueue.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

from tests.connectors.support import Authority, authority, kubeconfig, server_context

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
Raw = dict[str, Any]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass(frozen=True)
class Seen:
    """One request as the server got it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any = None

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass
class Watcher:
    """An open watch; `send` gives it raw bytes, None ends it as the server does at its timeout."""

    collection: str
    chunks: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    broken: bool = False

    def send(self, *chunks: bytes | None) -> None:
        for chunk in chunks:
            self.chunks.put_nowait(chunk)

    def event(self, kind: str, raw: Raw) -> None:
        self.send(json.dumps({"type": kind, "object": raw}).encode() + b"\n")


class ApiServer:
    """`async with ApiServer() as api`. Collections must be served before they are asked for: `serve(path)`."""

    def __init__(self, name: str = "one", *, client_certificates: bool = False) -> None:
        self.name = name
        self.trust: Authority = authority()
        self.version = 100
        self.tokens = {"t0"}
        self.seen: list[Seen] = []
        self.collections: dict[str, dict[tuple[str, str], Raw]] = {}
        self.watchers: list[Watcher] = []
        self.oldest_version = 0
        self.faults: dict[tuple[str, str], Fault] = {}
        """(method or "WATCH", path) to something that answers instead; it may return None to let the call pass."""
        self.extra: dict[str, Raw] = {"/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}}
        """Plain objects by path."""
        self._context = server_context(self.trust, client_certificates=client_certificates)
        self._client_certificates = client_certificates
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.serve("/api/v1/namespaces", "/api/v1/events")
        self.put("/api/v1/namespaces", named("kube-system", uid=f"uid-{name}"))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, token: str | None = "t0", **changes: Any) -> bytes:
        return kubeconfig(self.url, self.trust, token, **changes)

    # --- content ---

    def serve(self, *collections: str) -> None:
        for path in collections:
            self.collections.setdefault(path, {})

    def put(self, collection: str, raw: Raw, *, silently: bool = False) -> Raw:
        """Create or change an object, and tell the watchers, unless they are to be behind."""
        stored = self.collections[collection]
        key = (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        kind = "MODIFIED" if key in stored else "ADDED"
        self.version += 1
        raw = copy.deepcopy(raw)
        raw["metadata"] = {"uid": f"uid-{key[1]}", **raw["metadata"], "resourceVersion": str(self.version)}
        stored[key] = raw
        if not silently:
            self._tell(collection, kind, raw)
        return raw

    def delete(self, collection: str, name: str, namespace: str = "", *, silently: bool = False) -> None:
        raw = self.collections[collection].pop((namespace, name))
        self.version += 1
        if not silently:
            gone = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}}
            self._tell(collection, "DELETED", gone)

    def bookmark(self, collection: str) -> None:
        self._tell(collection, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def watching(self, collection: str) -> list[Watcher]:
        return [w for w in self.watchers if w.collection == collection]

    def requests(self, method: str, path: str = "") -> list[Seen]:
        """What was asked, oldest first. Method LIST is a GET of a collection, WATCH a watch."""
        return [s for s in self.seen if _method(s) == method and s.path.startswith(path)]

    def _tell(self, collection: str, kind: str, raw: Raw) -> None:
        for watcher in self.watching(collection):
            watcher.event(kind, raw)

    # --- serving ---

    async def __aenter__(self) -> ApiServer:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.break_watches()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _listen(self) -> None:
        assert self._runner is not None
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop_listening(self) -> None:
        """Connections are refused from now on, and the open ones end."""
        assert self._runner is not None
        self.break_watches()
        for site in list(self._runner.sites):
            await site.stop()

    async def listen_again(self) -> None:
        await self._listen()

    def break_watches(self) -> None:
        for watcher in list(self.watchers):
            watcher.broken = True
            watcher.send(None)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        seen = Seen(
            request.method, request.path, dict(request.query), dict(request.headers), json.loads(body) if body else None
        )
        self.seen.append(seen)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self._client_certificates and token not in self.tokens:
            return problem(401, "Unauthorized")
        for method in ("WATCH",) if seen.is_watch else (_method(seen), request.method):
            fault = self.faults.get((method, request.path))
            answer = await fault(request) if fault is not None else None
            if answer is not None:
                return answer
        if request.path in self.extra:
            return web.json_response(self.extra[request.path])
        if request.path in self.collections and request.method == "GET":
            return await self._watch(request) if seen.is_watch else self._list(request)
        return self._one(request, seen)

    def _list(self, request: web.Request) -> web.StreamResponse:
        objects = [raw for _, raw in sorted(self.collections[request.path].items())]
        start, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "500"))
        meta = {"resourceVersion": str(self.version)}
        if start + limit < len(objects):
            meta["continue"] = str(start + limit)
        return web.json_response({"metadata": meta, "items": objects[start : start + limit]})

    def _list_in(self, collection: str, namespace: str, selector: str) -> web.StreamResponse:
        """Of one namespace; the only field to select by is the name."""
        wanted = selector.removeprefix("metadata.name=")
        items = [
            raw
            for (where, name), raw in sorted(self.collections[collection].items())
            if where == namespace and wanted in ("", name)
        ]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if int(request.query["resourceVersion"]) < self.oldest_version:
            return problem(410, "too old resource version")
        watcher = Watcher(request.path)
        self.watchers.append(watcher)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while (chunk := await watcher.chunks.get()) is not None:
                await response.write(chunk)
            if watcher.broken and request.transport is not None:
                request.transport.abort()
        finally:
            self.watchers.remove(watcher)
        return response

    def _one(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        collection, namespace, name, status = split(request.path)
        if request.method == "GET" and name == "" and collection in self.collections:
            return self._list_in(collection, namespace, seen.query.get("fieldSelector", ""))
        if request.method == "POST" and status is None and name == "":
            return self._create(collection, namespace, seen.body)
        stored = self.collections.get(collection, {}).get((namespace, name))
        if stored is None:
            return problem(404, f"{request.path} not found")
        if request.method == "GET":
            return web.json_response(stored)
        if request.method == "PATCH":
            return self._patch(collection, stored, seen)
        return problem(405, "not allowed")

    def _create(self, collection: str, namespace: str, body: Raw) -> web.StreamResponse:
        if collection not in self.collections:
            return problem(404, f"{collection} not found")
        if (namespace, body["metadata"]["name"]) in self.collections[collection]:
            return problem(409, "already exists")
        return web.json_response(self.put(collection, body), status=201)

    def _patch(self, collection: str, stored: Raw, seen: Seen) -> web.StreamResponse:
        if seen.headers.get("Content-Type") != "application/merge-patch+json":
            return problem(415, "unsupported media type")
        for guard in ("resourceVersion", "uid"):
            wanted = seen.body.get("metadata", {}).get(guard)
            if wanted is not None and wanted != stored["metadata"][guard]:
                return problem(409, "the object has been modified")
        return web.json_response(self.put(collection, merged(stored, seen.body)))


def split(path: str) -> tuple[str, str, str, str | None]:
    """(collection over all namespaces, namespace, name, subresource) of a request path."""
    parts = path.strip("/").split("/")
    head = 2 if parts[0] == "api" else 3
    prefix, rest = parts[:head], parts[head:]
    namespace = ""
    if rest and rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, sub = ([*rest, "", "", ""])[:3]
    return "/" + "/".join([*prefix, plural]), namespace, name, sub or None


def merged(old: Raw, patch: Raw) -> Raw:
    """RFC 7396."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(result.get(key) if isinstance(result.get(key), dict) else {}, value)
        else:
            result[key] = value
    return result


def problem(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
    return web.json_response(body, status=status, headers=headers)


def always(status: int, message: str = "no", headers: dict[str, str] | None = None) -> Fault:
    async def fault(_: web.Request) -> web.StreamResponse | None:
        return problem(status, message, headers)

    return fault


def named(name: str, namespace: str = "", **meta: Any) -> Raw:
    """An object with nothing but metadata."""
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **meta}}


def _method(seen: Seen) -> str:
    if seen.is_watch:
        return "WATCH"
    return "LIST" if seen.method == "GET" and "limit" in seen.query else seen.method
