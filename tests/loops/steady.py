"""A hub whose views keep the objects that have not changed, as those of the real connector do."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from dispatcher.core.ports import HubPort
from dispatcher.core.snapshot import HubView

_PARTS = tuple(f.name for f in fields(HubView) if f.name not in ("synced", "observed_at", "error"))


@dataclass(slots=True)
class Steady:
    """The embedded fleet makes its mappings anew for each view; equal ones are the same object here."""

    port: HubPort
    _shown: HubView | None = None

    def view(self) -> HubView:
        seen = self.port.view()
        if self._shown is not None:
            seen = replace(seen, **{name: self._kept(name, seen) for name in _PARTS})
        self._shown = seen
        return seen

    def _kept(self, name: str, seen: HubView) -> Any:
        new, old = getattr(seen, name), getattr(self._shown, name)
        return old if new == old else new

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)
