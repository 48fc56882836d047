"""The shape of answers about what runs used."""

from __future__ import annotations

from datetime import datetime

from dispatcher.web.wire import Wire


class RunView(Wire):
    """A run from its admission to its end, and what it used of the grid by what the blueprint declares."""

    cluster: str
    begun_at: datetime
    ended_at: datetime
    gpus: int
    watt_hours: int | None
    """The site's overhead included; null: not known."""
    co2_grams: int | None
    text: str
