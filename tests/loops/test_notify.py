"""Events wait in a bounded line, are tried a few times, and never make their loop look dead."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from dispatcher.core.errors import EntrepotError, Refused, Transient
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.ports import EventType, Notice
from dispatcher.loops import notify
from dispatcher.loops.notify import LIMIT, LONGEST_PAUSE_S, NoticeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health, Waker
from tests.connectors.support import EagerClock


def notice(name: str, reason: str = "Waiting", message: str = "m") -> Notice:
    return Notice(WorkloadUid(name), "autonomy", name, EventType.NORMAL, reason, message)


@dataclass
class Hub:
    """Answers with `errors`, one a call, and then takes everything; each call takes its whole deadline."""

    clock: EagerClock
    health: Health
    errors: list[EntrepotError] = field(default_factory=list)
    written: list[Notice] = field(default_factory=list)
    asked_at_s: list[float] = field(default_factory=list)

    async def notify(self, told: Notice) -> None:
        self.asked_at_s.append(self.clock.monotonic_s())
        assert self.health.sick() == (), "it is being seen to"
        if self.errors:
            await self.clock.sleep(15.0)
            raise self.errors.pop(0)
        self.written.append(told)


def looped() -> tuple[NoticeLoop, Hub]:
    clock = EagerClock()
    health = Health(clock)
    health.register(notify.LOOP, 60.0)
    hub = Hub(clock, health)
    return NoticeLoop(hub, clock, Metrics(), health, Waker(clock)), hub  # type: ignore[arg-type]


def lost(loop: NoticeLoop, cause: str) -> float:
    return loop.metrics.registry.get_sample_value("entrepot_events_lost_total", {"cause": cause}) or 0.0


async def test_however_long_a_hub_asks_to_wait_the_next_notice_is_not_held_up_for_minutes() -> None:
    loop, hub = looped()
    hub.errors = [Transient("503", retry_after_s=300.0) for _ in range(5)]
    for name in ("a", "b"):
        loop.put(notice(name))
    await loop.drain()
    assert [told.name for told in hub.written] == ["b"]
    pauses = [later - earlier - 15.0 for earlier, later in zip(hub.asked_at_s, hub.asked_at_s[1:], strict=False)]
    assert max(pauses) <= LONGEST_PAUSE_S
    assert (lost(loop, "unreachable"), loop.pending()) == (1, 0)
    assert hub.health.sick() == ()


@pytest.mark.parametrize(
    ("errors", "written", "cause"),
    [
        ([Transient("gone"), Transient("gone")], ["a"], None),
        ([Transient("gone")] * 3, [], "unreachable"),
        ([Refused("forbidden")], [], "refused"),
    ],
    ids=["back in time", "away for too long", "not allowed"],
)
async def test_what_cannot_be_written_is_counted(
    errors: list[EntrepotError], written: list[str], cause: str | None
) -> None:
    loop, hub = looped()
    hub.errors = list(errors)
    loop.put(notice("a"))
    await loop.drain()
    assert [told.name for told in hub.written] == written
    assert {c: lost(loop, c) for c in ("unreachable", "refused") if lost(loop, c)} == ({cause: 1} if cause else {})


async def test_the_line_is_bounded_and_the_newest_of_a_kind_replaces_the_one_before() -> None:
    loop, hub = looped()
    for number in range(LIMIT + 3):
        loop.put(notice(f"w{number}"))
    loop.put(notice("w5", message="newer"))
    loop.put(notice("w5", reason="Nominated"))
    assert loop.pending() == LIMIT
    assert lost(loop, "queue-full") == 4, "three too many, and one for the second reason"
    await loop.drain()
    assert [(told.name, told.reason, told.message) for told in hub.written[-2:]] == [
        ("w5", "Waiting", "newer"),
        ("w5", "Nominated", "m"),
    ]
