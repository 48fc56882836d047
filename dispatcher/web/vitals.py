"""How the daemon is, for probes: answers that need nothing of what the API is made of, and are there before it.

Their shapes are `HealthView` and `ReadyView` (models.py), which a test holds them to; to make models takes long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dispatcher.core.footing import Footing, Mode
from dispatcher.runtime import LoopHealth
from dispatcher.web.status import span

NO_FOOTING = Footing()
"""Nobody has looked yet."""
_FOOTINGS = {
    Mode.BLIND: "the hub is not seen: nothing is concluded",
    Mode.WARMING: "not seen for long enough yet: no loss of a cluster has a consequence",
    Mode.STEADY: "the fleet is seen well enough to act on the loss of a cluster",
    Mode.FROZEN: "too many clusters went at once to be their own fault: nothing is done about it until they are back",
}


@dataclass(frozen=True, slots=True)
class LeaderFacts:
    """Who leads, as one replica sees it. `holder` "" = nobody; `term` is our own, 0 while we do not lead."""

    leading: bool
    me: str
    holder: str
    role: str
    term: int


class HealthSource(Protocol):
    """What the API asks the daemon about itself."""

    def loops(self) -> Sequence[LoopHealth]: ...

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """Whether it can dispatch now, and if not, why not."""

    def leader(self) -> LeaderFacts | None:
        """Who leads among the replicas; None for a daemon that runs alone."""

    def metrics_text(self) -> bytes:
        """Prometheus exposition format."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: the same bytes whoever sends them."""

    status: int
    body: bytes
    media_type: str = "application/json"


def healthz(source: HealthSource, seen: Footing = NO_FOOTING, refused: tuple[str, ...] = ()) -> Answer:
    """503 with the dead or silent loop named: restart the daemon.

    `seen`: what may be concluded from silence. `refused`: why the blueprint's files do not rule. Neither makes anybody
    unhealthy, and both are said.
    """
    loops = source.loops()
    sick = [_sick_text(loop) for loop in loops if not _is_well(loop)]
    facts = source.leader()
    said = sick or ["all loops come round"]
    if refused:
        said = [*said, "the blueprint's files are refused and the last good ones rule: see /v1/blueprint"]
    if seen.mode is Mode.FROZEN:
        said = [*said, _FOOTINGS[seen.mode]]
    found = {
        "ok": not sick,
        "text": "; ".join(said),
        "loops": [_loop(loop) for loop in loops],
        "leader": _leader(facts) if facts is not None else None,
        "footing": _footing(seen),
    }
    return _answer(found, ok=not sick)


def readyz(source: HealthSource) -> Answer:
    """503 while it cannot dispatch yet; a restart does not help."""
    ok, reasons = source.ready()
    return _answer({"ok": ok, "reasons": reasons}, ok=ok)


def metrics(source: HealthSource) -> Answer:
    """Prometheus exposition."""
    return Answer(200, source.metrics_text(), "text/plain; version=0.0.4; charset=utf-8")


def _answer(found: dict[str, object], *, ok: bool) -> Answer:
    body = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Answer(200 if ok else 503, body)


def _is_well(loop: LoopHealth) -> bool:
    return loop.alive and loop.last_beat_age_s <= loop.limit_s


def _loop(loop: LoopHealth) -> dict[str, object]:
    return {
        "name": loop.name,
        "ok": _is_well(loop),
        "alive": loop.alive,
        "last_beat_age_s": round(loop.last_beat_age_s, 3),
        "limit_s": None if loop.limit_s == float("inf") else loop.limit_s,
        "error": loop.error,
    }


def _sick_text(loop: LoopHealth) -> str:
    if not loop.alive:
        return f"loop {loop.name} died: {loop.error or 'no error recorded'}"
    silent_s = round(loop.last_beat_age_s, 3)
    return f"loop {loop.name} has been silent for {span(int(silent_s))} (limit {span(int(loop.limit_s))})"


def _leader(facts: LeaderFacts) -> dict[str, object]:
    if facts.leading:
        text = f"{facts.me} leads in term {facts.term} and dispatches"
    elif facts.holder and facts.holder != facts.me:
        text = f"{facts.holder} leads; {facts.me} stands by"
    else:
        text = f"nobody is known to lead; {facts.me} is {facts.role}"
    return {
        "leading": facts.leading,
        "me": facts.me,
        "holder": facts.holder or None,
        "role": facts.role,
        "term": facts.term,
        "text": text,
    }


def _footing(seen: Footing) -> dict[str, object]:
    return {
        "mode": seen.mode.value,
        "since": _instant(seen.since) if seen.since is not None else None,
        "lost": [{"cluster": name, "since": _instant(at)} for name, at in sorted(seen.lost.items())],
        "text": _FOOTINGS[seen.mode],
    }


def _instant(at: datetime) -> str:
    """As the rest of the API writes it."""
    return at.isoformat().replace("+00:00", "Z")
