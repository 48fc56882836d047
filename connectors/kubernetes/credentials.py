"""Where a cluster's access comes from, and the rule that it is read again: none of it is read once for ever.

A source is asked on a timer and after a 401 (FR-AUT-03). A Secret is polled rather than watched: a GET of one named
Secret needs `get` on that name only, a watch needs `list` on all Secrets of the namespace.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from connectors.kubernetes.faults import NotFound
from connectors.kubernetes.fields import Raw, child, text
from connectors.kubernetes.kubeconfig import Access, BadKubeconfig, parse
from dispatcher.core.errors import Transient
from dispatcher.core.policy import Credentials

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILE_LIMIT = 1 << 20

GetSecret = Callable[[str, str], Awaitable[Raw]]
"""Reads one Secret of the hub: (namespace, name) to the object. Raises NotFound, Refused or Transient."""


class Source(Protocol):
    """Something that says how a cluster is reached now."""

    async def read(self) -> Access:
        """The access as it stands.

        Raises:
            BadKubeconfig: what is there must not be used; the cluster is out until it is mended.
            Transient: it could not be read now; what was read before stays good.
        """


@dataclass(frozen=True, slots=True)
class FileSource:
    """A kubeconfig file; it may name files beside it."""

    path: Path

    async def read(self) -> Access:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Access:
        return parse(file_content(self.path, "kubeconfig"), self.path.parent)


@dataclass(frozen=True, slots=True)
class InClusterSource:
    """The service account of the pod that we run in; the kubelet rotates its token file."""

    host: str
    port: str
    directory: Path = SERVICE_ACCOUNT

    async def read(self) -> Access:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Access:
        if not self.host or not self.port:
            raise BadKubeconfig("not in a cluster: give a kubeconfig file, or run as a pod with a service account")
        host = f"[{self.host}]" if ":" in self.host else self.host
        authority = file_content(self.directory / "ca.crt", "ca.crt of the service account")
        return Access(
            server=f"https://{host}:{self.port}",
            ca_pem=authority.decode("ascii", "replace"),
            token_file=self.directory / "token",
        )


@dataclass(frozen=True, slots=True)
class SecretSource:
    """A kubeconfig in a Secret of the hub, as MultiKueue keeps them (key `kubeconfig`)."""

    get: GetSecret
    namespace: str
    name: str
    key: str

    async def read(self) -> Access:
        content = await secret_value(self.get, self.namespace, self.name, self.key)
        try:
            return parse(content)
        except BadKubeconfig as error:
            raise BadKubeconfig(f"Secret {self.namespace}/{self.name}: {error}") from None


async def secret_value(get: GetSecret, namespace: str, name: str, key: str) -> bytes:
    """The content of one key of a Secret of the hub.

    Raises:
        BadKubeconfig: there is no such Secret or key, or it is not base64.
        Transient: the hub does not answer now.
    """
    where = f"Secret {namespace}/{name}"
    try:
        secret = await get(namespace, name)
    except NotFound:
        raise BadKubeconfig(f"{where} does not exist on the hub") from None
    encoded = text(child(secret, "data"), key)
    if not encoded:
        raise BadKubeconfig(f"{where} has no key {key!r}")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise BadKubeconfig(f"{where}: key {key!r} is not base64") from None


async def key_of(credentials: Credentials, get: GetSecret) -> bytes:
    """A key that the blueprint names, for something else than a cluster; read anew at each call.

    Raises:
        BadKubeconfig: it is not there.
        Transient: it cannot be read now.
    """
    if credentials.file is not None:
        return await asyncio.to_thread(file_content, Path(credentials.file), "key file")
    where = credentials.secret_namespace or "", credentials.secret_name or ""
    return await secret_value(get, *where, credentials.secret_key)


async def token_of(credentials: Credentials, get: GetSecret) -> str:
    """A bearer token that the blueprint names, for something else than a cluster; read anew at each call.

    Raises:
        BadKubeconfig: it is not there, or is no token.
        Transient: it cannot be read now.
    """
    token = (await key_of(credentials, get)).decode("ascii", "replace").strip()
    if not token:
        raise Transient("the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadKubeconfig("what should be a token is none: it has blanks or other characters that no header may have")
    return token


@dataclass(frozen=True, slots=True)
class NoSource:
    """A cluster of the blueprint that names no credentials."""

    reason: str

    async def read(self) -> Access:
        raise BadKubeconfig(self.reason)


def file_content(path: Path, what: str) -> bytes:
    """A small file, whole.

    Raises:
        BadKubeconfig: there is none.
        Transient: it cannot be read now.
    """
    try:
        with path.open("rb") as file:
            return file.read(_FILE_LIMIT)
    except FileNotFoundError:
        raise BadKubeconfig(f"{what} does not exist") from None
    except OSError as error:
        raise Transient(f"{what} cannot be read: {error.strerror}") from None


def same_endpoint(one: Access, other: Access) -> bool:
    """Whether connections may be kept: everything but the bearer token is the same."""
    return replace(one, token=None, token_file=None) == replace(other, token=None, token_file=None)
