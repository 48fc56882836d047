"""The catalog's endpoint and the stores' buckets wired up: a client is loaded only where a blueprint names one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from connectors.kubernetes import GetSecret, key_of, token_of
from dispatcher.app.rules import WatchedFolder
from dispatcher.core.errors import Refused
from dispatcher.core.policy import CatalogSource, ObjectSource, Policy
from dispatcher.core.ports import CatalogPort, Clock, ObjectsPort
from dispatcher.logs import get_logger
from dispatcher.loops.catalog import CatalogDesk, where_of


def catalog_desk(source: WatchedFolder, clock: Clock, get_secret: GetSecret | None) -> CatalogDesk:
    """The desk of a daemon's blueprint; without a hub that keeps Secrets (embedded), tokens lie in files."""

    def connect(endpoint: CatalogSource) -> CatalogPort:
        from connectors.catalog import HttpCatalog

        return HttpCatalog(endpoint, clock, _token(endpoint, get_secret or _no_secrets))

    desk = CatalogDesk(connect, source.judge, clock)
    source.catalog = desk.answer
    return desk


async def read_first(source: WatchedFolder, desk: CatalogDesk, policy: Policy) -> Policy:
    """Ask the endpoint before anything is decided, so that a restart holds nobody back who names its data sets. Where
    it does not answer, the daemon starts without them: it asks again."""
    if policy.catalog is None:
        return policy
    look = await desk.ask(policy.catalog.source)
    if look.trouble is not None:
        get_logger().warning("catalog_unreachable", where=where_of(policy.catalog.source), errors=list(look.texts))
    return await source.start_with_catalog() or policy


def store_opener(clock: Clock, get_secret: GetSecret | None) -> Callable[[ObjectSource], ObjectsPort]:
    """How a store's bucket is looked into."""

    def open_store(source: ObjectSource) -> ObjectsPort:
        from connectors.objects import ObjectStore

        credentials = source.key
        if credentials is None:
            return ObjectStore(source, clock)
        return ObjectStore(source, clock, lambda: key_of(credentials, get_secret or _no_secrets))

    return open_store


def _token(endpoint: CatalogSource, get_secret: GetSecret) -> Callable[[], Awaitable[str]] | None:
    credentials = endpoint.token
    if credentials is None:
        return None
    return lambda: token_of(credentials, get_secret)


async def _no_secrets(namespace: str, name: str) -> dict[str, object]:
    raise Refused("the embedded fleet keeps no Secrets: name a file instead")
