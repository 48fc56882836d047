"""Object stores: is a replica there, and how much of it? By obstore alone: S3, GCS and Azure (ADR 21).

The library is loaded by the first look, so that a daemon whose blueprint names no bucket never loads it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from dispatcher.core.errors import EntrepotError
from dispatcher.core.policy import ObjectSource
from dispatcher.core.ports import Clock
from dispatcher.core.replicas import Presence, Seen

MOST_OBJECTS = 10_000
"""Ten pages: what is beyond is `more`. A look must stay cheap, and that there is something is what it is for."""
PAGE = 1000
LOOK_S = 20.0
KEYS = frozenset(
    {
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "google_service_account_key",
        "azure_storage_account_name",
        "azure_storage_account_key",
        "azure_storage_sas_key",
    }
)
"""The names that a key file may hold: secrets, and nothing that would send them elsewhere."""

Key = Callable[[], Awaitable[bytes]]


class BadKey(EntrepotError):
    """A key file cannot be used; the text says why and holds nothing of it."""


@dataclass(slots=True)
class ObjectStore:
    """A store's bucket. `key` is read anew for each look; None = the identity of the pod."""

    source: ObjectSource
    clock: Clock
    key: Key | None = None
    deadline_s: float = LOOK_S

    async def look(self, name: str) -> Seen:
        """Look for a data set's replica. Never raises for what the store answers: that is what makes it unknown."""
        at = self.clock.now()
        try:
            async with asyncio.timeout(self.deadline_s):
                return await self._look(name)
        except TimeoutError:
            return Seen(Presence.UNKNOWN, at, why=f"no answer within {self.deadline_s:g} s")
        except EntrepotError as error:
            return Seen(Presence.UNKNOWN, at, why=str(error))
        except Exception as error:  # noqa: BLE001 - a foreign library: its errors are of no declared kinds
            return Seen(Presence.UNKNOWN, at, why=_why(error))

    async def _look(self, name: str) -> Seen:
        import obstore
        from obstore.exceptions import NotFoundError

        at, store = self.clock.now(), await self._open()
        if self.source.marker is not None:
            try:
                await obstore.head_async(store, f"{name}/{self.source.marker}")
            except (FileNotFoundError, NotFoundError):
                # A bucket that is not there answers the same. The listing below tells the two apart: it fails there.
                async for _ in obstore.list(store, prefix=f"{name}/", chunk_size=1):
                    break
                return Seen(Presence.MISSING, at, why=f"has no {self.source.marker}")
        objects = size = 0
        async for page in obstore.list(store, prefix=f"{name}/", chunk_size=PAGE):
            objects += len(page)
            size += sum(meta["size"] for meta in page)
            if objects >= MOST_OBJECTS:
                return Seen(Presence.CONFIRMED, at, objects, size, more=True)
        if not objects:
            return Seen(Presence.MISSING, at, 0, 0, why="has no object")
        return Seen(Presence.CONFIRMED, at, objects, size)

    async def _open(self) -> Any:
        from datetime import timedelta

        from obstore.store import from_url

        config = await self._config()
        client = {"timeout": timedelta(seconds=10), "connect_timeout": timedelta(seconds=5)}
        options: Any = {**client, "allow_http": (self.source.endpoint or "").startswith("http://")}
        retry: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=self.deadline_s)}
        # Reading the identity of the machine may touch files.
        return await asyncio.to_thread(
            lambda: from_url(self.source.url, config=config, client_options=options, retry_config=retry)
        )

    async def _config(self) -> Any:
        found: dict[str, str] = {}
        kind = self.source.url.partition("://")[0]
        if self.source.endpoint is not None:
            found["aws_endpoint" if kind == "s3" else "azure_storage_endpoint"] = self.source.endpoint
        if self.source.region is not None and kind == "s3":
            found["aws_region"] = self.source.region
        return {**found, **(_keys(await self.key()) if self.key is not None else {})}


def _keys(content: bytes) -> dict[str, str]:
    try:
        read = json.loads(content)
    except ValueError:
        raise BadKey("the key is not JSON") from None
    if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
        raise BadKey("the key is not an object of texts")
    strange = sorted(set(read) - KEYS)
    if strange or not read:
        raise BadKey(f"the key holds other names than {', '.join(sorted(KEYS))}")
    return read


def _why(error: Exception) -> str:
    """The kind of a failure, in our words: the library's text quotes requests and answers."""
    name, text = type(error).__name__, str(error)
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        return "there is no such bucket"
    known = {
        "PermissionDeniedError": "we may not list it",
        "UnauthenticatedError": "it does not know us",
        "FileNotFoundError": "there is no such bucket",
        "NotFoundError": "there is no such bucket",
    }
    return known.get(name, f"cannot be asked ({name})")
