"""What may be concluded from silence, as an answer."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.footing import Mode
from dispatcher.web.wire import Wire


class LostCluster(Wire):
    """A cluster whose loss clock runs; `since` is when it began."""

    cluster: str
    since: datetime


class FootingView(Wire):
    """Only while `steady` does the loss of a cluster have consequences."""

    mode: Mode
    since: datetime | None
    """From when on this replica has looked without a break."""
    lost: tuple[LostCluster, ...]
    text: str
