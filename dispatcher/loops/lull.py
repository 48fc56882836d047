"""Between two changes: those that wait wait on, and need not be asked one by one whether they still do.

Ten thousand may wait, and most of the time nothing has changed since the last pass but the time. Until when that alone
changes nothing, the dispatch loop says (`again_at`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import HubView
from dispatcher.core.workload import Avoided
from dispatcher.loops.hold_back import HoldBack


@dataclass(frozen=True, slots=True)
class Scene:
    """What everybody who waits is judged by, apart from the time and from what we have promised."""

    hub: HubView
    policy: Policy
    weighed: int
    """The memo's count of changes in what it weighs: views of clusters but for their age, holds, prices, the law."""
    avoided: Mapping[WorkloadUid, tuple[Avoided, ...]]

    def is_that_of(self, other: Scene) -> bool:
        return (
            self.hub.shows_what(other.hub)
            and self.policy is other.policy
            and self.weighed == other.weighed
            and self.avoided == other.avoided
        )


@dataclass(slots=True)
class Lull:
    """A pass in which everybody waited as before. `until`: time alone lets the next ones come out alike so long."""

    scene: Scene
    back: HoldBack
    looked_at: datetime
    until: datetime | None = None

    def lasts(self, scene: Scene, now: datetime) -> bool:
        """Whether another pass would find the same."""
        if self.until is None or now >= self.until or not self.scene.is_that_of(scene):
            return False
        self.back.now = now  # starts are still worked out for people who ask
        return True
