"""The shape of answers about interactive work that may be freed when nobody uses it."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.idle import Doubt, Stage
from dispatcher.web.wire import Wire


class IdleView(Wire):
    """How a workload under an idle timeout stands (docs/interactive.md)."""

    stage: Stage
    idle_since: datetime | None
    """Not used since then, as far as `checked`; null = not known, and `doubt` says why."""
    checked: datetime | None
    doubt: Doubt | None
    timeout_s: int | None
    notice_s: int | None
    ends: datetime | None
    """When its notice runs out; null = it has none."""
    ended_at: datetime | None
    text: str
