"""Reads the endpoint that data sets come from, and hands what holds to the blueprint's reload.

A bad answer changes nothing: the last good one stays until it is too old to say anything. How old it is, is measured in
seconds that never jump, so no clock that is set makes an old answer young or a young one old.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from dispatcher.config.catalog import Answer
from dispatcher.core.errors import Refused, Transient
from dispatcher.core.policy import CatalogSource
from dispatcher.core.ports import CatalogPort, Clock
from dispatcher.logs import get_logger
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import CatalogStatus, FleetState

LOOP = "catalog"
POLL_S = 2.0
LIMIT_S = 300.0
"""Three attempts with their redirects and pauses take less."""

Texts = tuple[str, ...]


class Trouble(StrEnum):
    """What may be wrong with the endpoint. Stable codes: they are in metrics."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class _Held:
    """The last good answer of an endpoint, and when it was asked that confirmed it last."""

    source: CatalogSource
    answer: Answer
    etag: str | None
    confirmed_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """What came of asking: nothing against it, or a trouble in words."""

    trouble: Trouble | None = None
    texts: Texts = ()


@dataclass(slots=True)
class CatalogDesk:
    """The newest good answer, and the way to a newer one. `judge` says what is wrong with an answer, by the models and
    rules of the blueprint that it would become a part of."""

    connect: Callable[[CatalogSource], CatalogPort]
    judge: Callable[[Answer], Awaitable[Texts]]
    clock: Clock
    _held: _Held | None = None
    _port: tuple[CatalogSource, CatalogPort] | None = None

    def answer(self) -> Answer | None:
        """What the blueprint is to be read with now; None: nothing was read since the start."""
        held = self._held
        if held is None:
            return None
        return replace(held.answer, old=self._age_s(held) > held.source.max_age_s)

    def age_s(self, source: CatalogSource) -> float | None:
        """How long ago the endpoint was asked that last confirmed what we hold of it; None: we hold nothing of it."""
        return self._age_s(self._held) if self._held is not None and self._held.source.url == source.url else None

    def read_at(self, source: CatalogSource) -> datetime | None:
        return self._held.answer.read_at if self._held is not None and self._held.source.url == source.url else None

    async def ask(self, source: CatalogSource) -> Look:
        """Ask the endpoint once. Never raises for what it answers, nor where it does not."""
        held = self._held if self._held is not None and self._held.source.url == source.url else None
        asked_s, asked_at = self.clock.monotonic_s(), self.clock.now()
        try:
            found = await self._connected(source).fetch(held.etag if held is not None else None)
        except Transient as error:
            return Look(Trouble.UNREACHABLE, (str(error),))
        except Refused as error:
            return Look(Trouble.REFUSED, (str(error),))
        if held is not None and (found is None or found.body == held.answer.body):
            etag = held.etag if found is None else found.etag
            self._held = _Held(source, replace(held.answer, read_at=asked_at), etag, asked_s)
            return Look()
        if found is None:
            return Look(Trouble.REFUSED, ("answers that nothing changed, where nothing was known",))
        answer = Answer(source.url, found.body, asked_at)
        texts = await self.judge(answer)
        if texts:
            return Look(Trouble.REFUSED, texts)
        self._held = _Held(source, answer, found.etag, asked_s)
        return Look()

    def _age_s(self, held: _Held) -> float:
        return self.clock.monotonic_s() - held.confirmed_s

    def _connected(self, source: CatalogSource) -> CatalogPort:
        if self._port is None or self._port[0] != source:
            self._port = (source, self.connect(source))
        return self._port[1]


@dataclass(slots=True)
class CatalogLoop:
    """Asks as often as the blueprint says, tells what is wrong once each time that it is something else."""

    state: FleetState
    desk: CatalogDesk | None
    metrics: Metrics
    health: Health
    _asked: tuple[CatalogSource, float] | None = None
    _told: Look = field(default_factory=Look)
    _old: bool = False

    async def run(self) -> None:
        while True:
            self.health.beat(LOOP)
            await self.turn()
            await self.state.clock.sleep(POLL_S)

    async def turn(self) -> None:
        """Ask if it is time to; in any case say how old what we hold is."""
        catalog = self.state.policy.catalog
        if catalog is None or self.desk is None:
            self.state.catalog, self._asked = None, None
            return
        source, now_s = catalog.source, self.state.clock.monotonic_s()
        if self._asked is None or self._asked[0] != source or now_s - self._asked[1] >= source.every_s:
            self._asked = (source, now_s)
            self._tell(source, await self.desk.ask(source))
        self._tell_age(source)

    def _tell(self, source: CatalogSource, look: Look) -> None:
        where = where_of(source)
        assert self.desk is not None
        self.state.catalog = CatalogStatus(where, self.state.clock.now(), self.desk.read_at(source), look.texts)
        for trouble in (Trouble.UNREACHABLE, Trouble.REFUSED):
            self.metrics.catalog_trouble.labels(trouble.value).set(look.trouble is trouble)
        if look == self._told:
            return
        self._told = look
        if look.trouble is None:
            get_logger().info("catalog_read", where=where)
        elif look.trouble is Trouble.UNREACHABLE:
            get_logger().warning("catalog_unreachable", where=where, errors=list(look.texts))
        else:
            get_logger().error("catalog_refused", where=where, errors=list(look.texts))

    def _tell_age(self, source: CatalogSource) -> None:
        assert self.desk is not None
        age_s = self.desk.age_s(source)
        old = age_s is not None and age_s > source.max_age_s
        self.metrics.catalog_age.set(age_s if age_s is not None else 0)
        self.metrics.catalog_trouble.labels(Trouble.OLD.value).set(old)
        if old and not self._old:
            get_logger().error("catalog_old", where=where_of(source), max_age_s=source.max_age_s)
        self._old = old


def where_of(source: CatalogSource) -> str:
    """Its URL for logs and people, without a query, which may hold what nobody should read."""
    return source.url.partition("?")[0]
