"""One client object per cluster, and nothing shared between two (FR-AUT-01): no default configuration exists.

aiohttp underneath, with every byte of JSON decoded by us: the generated client's models cost more than all the rest
(docs/adr/0002-watch-layer.md). Access is replaceable while the client lives: the source is read on a timer and after
a 401, a changed token is swapped in place, anything else makes a new session and closes the old one's connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import tempfile
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp.typedefs import Query
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from connectors.kubernetes import faults
from connectors.kubernetes.bearer import Bearer, Rhythm
from connectors.kubernetes.body import Page, decoded
from connectors.kubernetes.credentials import Source, same_endpoint
from connectors.kubernetes.faults import NETWORK_ERRORS
from connectors.kubernetes.fields import Raw, child, text
from connectors.kubernetes.kubeconfig import Access, BadKubeconfig
from connectors.kubernetes.plugin import DEADLINE_S
from connectors.kubernetes.turns import Turns
from dispatcher.core.errors import EntrepotError, Refused, Transient
from dispatcher.core.ports import Clock
from dispatcher.logs import get_logger

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA_ONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

_BROKEN = (*NETWORK_ERRORS, RuntimeError)
"""RuntimeError is how aiohttp says that a session, or the connection of an open answer, was closed by ourselves."""

_READ_BYTES = 32 << 10
_ATTEMPTS = 3
_LONGEST_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. `call_s` is a whole call, body included; `connect_s` one TCP and TLS connect, also of a watch."""

    call_s: float = 15.0
    connect_s: float = 5.0
    list_s: float = 60.0
    reread_s: float = 60.0
    """A token file is read again when its content is older than this (FR-AUT-03)."""
    plugin_s: float = 600.0
    """A plugin runs again when its token is older than this, unless it says when it expires: then before that."""
    plugin_run_s: float = DEADLINE_S
    reload_gap_s: float = 5.0
    """A 401 makes us read the source at most this often: a revoked credential must not become a storm."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `params` are query parameters; `body` is sent as JSON with exactly `content_type`."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a request is sent with; compared after a 401 to see whether somebody renewed it since."""

    access: Access
    session: aiohttp.ClientSession
    token: str | None = field(repr=False)


class ApiClient:
    """Talks to one cluster. `generation` grows whenever what we talk to may be another server or another account."""

    def __init__(
        self,
        name: str,
        source: Source,
        clock: Clock,
        deadlines: Deadlines | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.name = name
        self.turns = turns or Turns()
        """For those who go through what this client brought; all clusters of one daemon share them."""
        self.generation = 0
        self.problem: str | None = None
        """Why the credentials must not be used; None while they may."""
        self._source = source
        self._clock = clock
        self._deadlines = deadlines or Deadlines()
        self._lock = asyncio.Lock()
        self._access: Access | None = None
        self._session: aiohttp.ClientSession | None = None
        self._streams: list[aiohttp.ClientResponse] = []
        self._bearer: Bearer | None = None
        self._reloaded_s = float("-inf")

    # --- calls ---

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, deadline_s: float | None = None) -> Raw:
        """GET one object, tried up to three times: the only place that repeats a call.

        Raises Refused (NotFound, Unauthorized), Transient.
        """
        call = Call("GET", path, params, deadline_s=deadline_s)
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_pause_s,
            sleep=self._clock.sleep,
            retry=retry_if_exception_type(Transient),
            reraise=True,
        ):
            with attempt:
                return await self.once(call)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def once(self, call: Call) -> Raw:
        """Make one call and read its JSON object; only a 401 is repeated, once, with credentials read again.

        Raises Refused (NotFound, Unauthorized), Conflict (Expired), Transient.
        """
        body, where = await self._body(call)
        return _json_object(body, where)

    async def _body(self, call: Call) -> tuple[bytes, str]:
        """The answer's bytes, and where they come from as errors tell it."""
        where = f"{self.name}: {call.method} {call.path}"
        timeout = aiohttp.ClientTimeout(
            total=call.deadline_s or self._deadlines.call_s, sock_connect=self._deadlines.connect_s
        )
        async with self._response(call, timeout, where) as response:
            try:
                return await response.read(), where
            except _BROKEN as error:
                raise faults.of_network(error, where) from None

    async def headers(self, path: str) -> Mapping[str, str]:
        """The headers of one answer, for what only they tell: the server's `Date`. Raises as `once`."""
        where = f"{self.name}: GET {path}"
        timeout = aiohttp.ClientTimeout(total=self._deadlines.call_s, sock_connect=self._deadlines.connect_s)
        async with self._response(Call("GET", path), timeout, where) as response:
            return dict(response.headers)

    async def page(self, path: str, params: Mapping[str, str], accept: str) -> Raw:
        """One page of a list, not repeated here: the informer comes round again by itself."""
        return await self.once(self._list_call(path, params, accept))

    async def listed(self, path: str, params: Mapping[str, str], accept: str) -> Page:
        """As `page`, for who reads it an object at a time. Raises as `once`, and Transient while it is read."""
        return Page(*await self._body(self._list_call(path, params, accept)))

    def _list_call(self, path: str, params: Mapping[str, str], accept: str) -> Call:
        return Call("GET", path, params, accept=accept, deadline_s=self._deadlines.list_s)

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str], accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch: chunks of bytes as they come, without any total timeout (FR-WAT-05).

        Raises (on entry) as `once`; while reading Transient when the connection breaks. A normal end just ends.
        """
        where = f"{self.name}: WATCH {path}"
        call = Call("GET", path, params, accept=accept)
        async with self._response(call, watch_timeout(self._deadlines), where) as response:
            self._streams.append(response)
            try:
                yield _chunks(response, where)
            finally:
                self._streams.remove(response)

    async def identity(self) -> str | None:
        """The UID of namespace kube-system, which is how a cluster is told from another; None if we may not see it."""
        try:
            found = await self.get("/api/v1/namespaces/kube-system")
        except faults.Unauthorized:
            raise
        except Refused:
            return None
        return text(child(found, "metadata"), "uid") or None

    @asynccontextmanager
    async def _response(
        self, call: Call, timeout: aiohttp.ClientTimeout, where: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer below 300; anything else is raised as a core error."""
        async with contextlib.AsyncExitStack() as stack:
            if self.problem is None and (self._access is None or self._session is None):
                await self._open()
            sent_as = await self._credentials()
            response = await self._send(stack, call, sent_as, (timeout, where))
            if response.status == 401 and await self._reload(sent_as):
                response.close()
                response = await self._send(stack, call, await self._credentials(), (timeout, where))
            if response.status >= 300:
                try:
                    body = await response.content.read(1 << 16)
                except _BROKEN:
                    body = b""
                raise faults.of_status(response.status, where, body, response.headers)
            yield response

    async def _send(
        self, stack: contextlib.AsyncExitStack, call: Call, sent_as: _Sent, how: tuple[aiohttp.ClientTimeout, str]
    ) -> aiohttp.ClientResponse:
        access, session, (timeout, where) = sent_as.access, sent_as.session, how
        headers = {"Accept": call.accept, "User-Agent": "entrepot"}
        if sent_as.token is not None:
            headers["Authorization"] = f"Bearer {sent_as.token}"
        data = None
        if call.body is not None:
            headers["Content-Type"] = call.content_type
            data = json.dumps(call.body, separators=(",", ":")).encode()
        params: Query = dict(call.params) if call.params else None
        try:
            # The URL is ours and the server's, so no redirect is ever followed: a token must not travel.
            return await stack.enter_async_context(
                session.request(
                    call.method,
                    access.server + call.path,
                    params=params,
                    headers=headers,
                    data=data,
                    timeout=timeout,
                    allow_redirects=False,
                    proxy=access.proxy,
                    server_hostname=access.server_name,
                )
            )
        except _BROKEN as error:
            raise faults.of_network(error, where) from None

    # --- access ---

    async def refresh(self) -> None:
        """Read the source and adopt what it says.

        Credentials that must not be used take the cluster out at once and close its connections (FR-AUT-02); when the
        source cannot be read now, what was read before stays in use.

        Raises:
            Transient: nothing usable was ever read.
        """
        async with self._lock:
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            access = await self._source.read()
            if access != self._access or self.problem is not None:
                await self._adopt(access)
        except Refused as error:
            await self._drop(str(error))
        except EntrepotError as error:
            if self._access is None and self.problem is None:
                raise
            get_logger().warning("credentials_not_read", cluster=self.name, error=str(error))

    async def _adopt(self, access: Access) -> None:
        known = self._access
        if known is None or self.problem is not None or not same_endpoint(known, access):
            context = await asyncio.to_thread(_tls, access)
            await self._close_session()
            self._session = _new_session(context)
            self.generation += 1
        rhythm = Rhythm(self._deadlines.reread_s, self._deadlines.plugin_s, self._deadlines.plugin_run_s)
        self._access, self._bearer = access, Bearer(self.name, access, self._clock, rhythm)
        self.problem = None
        if known is not None:
            get_logger().info("credentials_changed", cluster=self.name, generation=self.generation)

    async def _drop(self, problem: str) -> None:
        if problem != self.problem:
            get_logger().error("credentials_refused", cluster=self.name, error=problem)
        self.problem = problem
        await self._close_session()

    async def _reload(self, sent_as: _Sent) -> bool:
        """After a 401: read token and source again, unless somebody has since, or did so a moment ago in vain."""
        async with self._lock:
            if self.problem is None and sent_as != await self._credentials():
                return True
            now_s = self._clock.monotonic_s()
            if now_s - self._reloaded_s < self._deadlines.reload_gap_s:
                return False
            self._reloaded_s = now_s
            if self._bearer is not None:
                self._bearer.refused()
            await self._refresh()
            return self.problem is None

    async def _open(self) -> None:
        """Read the source if that was never done, and have a session."""
        async with self._lock:
            if self._access is None:
                await self._refresh()
            elif self._session is None and self.problem is None:
                self._session = _new_session(await asyncio.to_thread(_tls, self._access))

    async def _credentials(self) -> _Sent:
        if self.problem is not None:
            raise BadKubeconfig(f"{self.name}: {self.problem}")
        access, session, bearer = self._access, self._session, self._bearer
        if access is None or session is None or bearer is None:
            raise Transient(f"{self.name}: credentials are being replaced")
        return _Sent(access, session, await bearer.value())

    async def close(self) -> None:
        """Close all connections. A later call opens new ones."""
        await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        for response in self._streams:
            # A closed session forgets its open answers: whoever reads one would wait for ever.
            response.content.set_exception(aiohttp.ClientConnectionError("closed by us"))
        if session is not None:
            await session.close()


def watch_timeout(deadlines: Deadlines) -> aiohttp.ClientTimeout:
    """Only connecting has a deadline: a library's default total of five minutes would kill each watch (FR-WAT-05).
    How long a watch may be silent is the informer's business, by the Clock."""
    return aiohttp.ClientTimeout(total=None, connect=None, sock_connect=deadlines.connect_s, sock_read=None)


def _pause_s(state: RetryCallState) -> float:
    """What the server asked for, else 0.2, 0.4 ... seconds; a daemon's own start-up must not wait for minutes."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after_s if isinstance(error, Transient) else None
    return min(asked if asked is not None else 0.1 * 2**state.attempt_number, _LONGEST_WAIT_S)


def _json_object(body: bytes, where: str) -> Raw:
    try:
        found = decoded(body) if body else {}
    except ValueError:
        raise Transient(f"{where}: the answer is not JSON") from None
    if not isinstance(found, dict):
        raise Transient(f"{where}: the answer is not a JSON object")
    return found


async def _chunks(response: aiohttp.ClientResponse, where: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except _BROKEN as error:
        raise faults.of_network(error, where) from None


def _new_session(context: ssl.SSLContext) -> aiohttp.ClientSession:
    # Every connection keeps a buffer of this size, 256 KiB by default, and OpenSSL another that once held as much: an
    # idle watch took 310 KiB, now 90, and there are nine of them a cluster. A TLS record has 16 KiB at most. No
    # argument of asyncio or aiohttp leads here.
    SSLProtocol.max_size = _READ_BYTES
    connector = aiohttp.TCPConnector(ssl=context, limit=0, socket_factory=_socket)
    # trust_env stays off: neither a proxy nor a netrc password of the machine may join in unasked.
    return aiohttp.ClientSession(connector=connector, trust_env=False, read_bufsize=1 << 18)


def _socket(address: Any) -> socket.socket:
    """A socket on which the kernel notices a peer that vanished within about 35 s, also while nothing is sent."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _tls(access: Access) -> ssl.SSLContext:
    """A context that trusts the cluster's own CA alone (the system's when the kubeconfig names none).

    Raises BadKubeconfig; the texts of OpenSSL are kept, the material is not.
    """
    try:
        context = ssl.create_default_context(cadata=access.ca_pem)
    except (ssl.SSLError, ValueError):
        raise BadKubeconfig("certificate-authority: not a PEM certificate") from None
    if access.client_pem is not None:
        try:
            _load_client_pem(context, access.client_pem)
        except (ssl.SSLError, OSError):
            raise BadKubeconfig("client-certificate and client-key: not a PEM pair that belongs together") from None
    return context


def _load_client_pem(context: ssl.SSLContext, pem: str) -> None:
    """OpenSSL takes a file only: an anonymous one in memory where there is such a thing, else one deleted at once."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, pem.encode())
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
