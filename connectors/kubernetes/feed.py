"""All informers of one cluster, its heartbeat and its credentials, as one thing that runs and can be asked how it is.

The heartbeat is a list of one ClusterQueue: it goes through authentication, authorisation and the store, so it proves
more than `/readyz` would, which anonymous callers may read too. It lets freshness advance every few seconds on a
quiet cluster, where the watches say nothing for a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from connectors.kubernetes.client import ApiClient, Call
from connectors.kubernetes.watch import Informer, Observer, Surroundings, Unobserved, WatchSettings
from dispatcher.core.errors import EntrepotError
from dispatcher.core.ports import Clock
from dispatcher.logs import get_logger

_PROBE_S = 3.0
"""A lost cluster is asked more often than a healthy one: it should come back into dispatch soon."""
HEARTBEAT_PATH = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """Seconds. `credentials_s` is how often a kubeconfig's Secret or file is read again (FR-AUT-03: at most 60)."""

    watch: WatchSettings = field(default_factory=WatchSettings)
    heartbeat_s: float = 10.0
    heartbeat_deadline_s: float = 10.0
    credentials_s: float = 30.0


class Feed:
    """Runs what keeps one cluster's view current; says since when it is true and what is wrong."""

    def __init__(
        self, client: ApiClient, clock: Clock, settings: FeedSettings | None = None, observer: Observer | None = None
    ) -> None:
        self.client = client
        self.settings = settings or FeedSettings()
        self.around = Surroundings(client, clock, self.settings.watch, observer or Unobserved())
        self._clock = clock
        self._informers: list[Informer[Any]] = []
        self._heartbeat_at: datetime | None = None
        self._heartbeat_error: str | None = None
        self._group: asyncio.TaskGroup | None = None
        self._wake: Callable[[], None] = lambda: None

    def add(self, informer: Informer[Any]) -> None:
        """Watch one more kind, from now on if the feed runs already."""
        self._informers.append(informer)
        if self._group is not None:
            self._group.create_task(informer.run(self._wake))

    async def run(self, wake: Callable[[], None]) -> None:
        """Until cancelled; connections are closed on the way out."""
        self._wake = wake
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._credentials())
                group.create_task(self._heartbeat())
                for informer in self._informers:
                    group.create_task(informer.run(wake))
        finally:
            self._group = None
            await self.client.close()

    # --- how it is ---

    def synced(self, needed: Sequence[Informer[Any]] | None = None) -> bool:
        """Every needed kind has been listed from the present server, and its credentials may be used."""
        kinds = self._informers if needed is None else needed
        return self.client.problem is None and all(i.synced and i.current for i in kinds)

    def observed_at(self, needed: Sequence[Informer[Any]] | None = None) -> datetime | None:
        """The age of the quietest kind; None while any was never heard of. What is absent has none, and what we may not
        watch."""
        kinds = [i for i in (self._informers if needed is None else needed) if not (i.absent or i.unwatched)]
        ages = [self._fresh_at(informer) for informer in kinds]
        known = [age for age in ages if age is not None]
        return min(known) if known and len(known) == len(ages) else None

    def error(self) -> str | None:
        """What is wrong now, most telling first; None when nothing is."""
        if self.client.problem is not None:
            return f"{self.client.name}: {self.client.problem}"
        broken = [(informer.kind.name, informer.error) for informer in self._informers if informer.error is not None]
        return self._heartbeat_error or (min(broken)[1] if broken else None)

    def revision(self) -> int:
        """Grows with every change of any kind's content."""
        return sum(informer.cache.revision for informer in self._informers)

    def _fresh_at(self, informer: Informer[Any]) -> datetime | None:
        heard, beat = informer.heard_at, self._heartbeat_at
        if heard is None or beat is None or not informer.watching:
            return heard
        return max(heard, beat)

    # --- its own loops ---

    async def _heartbeat(self) -> None:
        call = Call("GET", HEARTBEAT_PATH, {"limit": "1"}, deadline_s=self.settings.heartbeat_deadline_s)
        while True:
            asked_at = self._clock.now()
            try:
                await self.client.once(call)
            except EntrepotError as error:
                self._said(str(error))
            else:
                self._heartbeat_at = asked_at
                self._said(None)
            lost = self._heartbeat_error is not None
            await self._clock.sleep(min(self.settings.heartbeat_s, _PROBE_S) if lost else self.settings.heartbeat_s)

    def _said(self, error: str | None) -> None:
        """The link's state as the heartbeat finds it; one log line when it changes."""
        before, self._heartbeat_error = self._heartbeat_error, error
        if (error is None) == (before is None):
            return
        if error is None:
            get_logger().info("cluster_reachable", cluster=self.client.name)
            self._kick()
        else:
            get_logger().warning("cluster_unreachable", cluster=self.client.name, error=error)
        self._wake()

    def _kick(self) -> None:
        for informer in self._informers:
            informer.kick()

    async def _credentials(self) -> None:
        while True:
            before = (self.client.problem, self.client.generation)
            try:
                await self.client.refresh()
            except EntrepotError as error:
                self._said(str(error))
            if (self.client.problem, self.client.generation) != before:
                self._kick()
                self._wake()
            await self._clock.sleep(self.settings.credentials_s)
