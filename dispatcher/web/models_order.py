"""The shape of answers about the order of those that wait."""

from __future__ import annotations

from datetime import datetime

from dispatcher.core.decision import Basis
from dispatcher.core.order import Ahead
from dispatcher.web.wire import Wire


class TurnView(Wire):
    """Why a workload stands where it stands among those of its priority (docs/order.md). Seconds are of waiting."""

    team: str
    share_ppm: int
    """What its team had of the fleet lately, in millionths of the resource that it had most of."""
    dominant: str | None
    """That resource; null = the team has had nothing."""
    worth_usd_micro: int
    """What one hour of waiting costs per GPU-hour of work that is left."""
    head_start_s: int
    handicap_s: int
    estimate_s: int
    estimate_basis: Basis
    estimate_runs: int = 0
    """Of how many earlier runs it is the median, where the basis is history."""
    passable_s: int
    """For so long others of its priority may still come and go first; 0 = nobody new goes before it."""
    behind: str | None
    """Who is next before it, as namespace/name; null = it is first, or does not wait for a decision."""
    behind_by: Ahead | None
    text: str


class ExpectedView(Wire):
    """When it is expected to start. An estimate: `basis` is the weakest that it stands on."""

    start: datetime
    cluster: str
    basis: Basis
    overdue: bool
    """Something that must end before should have ended already."""
    reserved: bool
    """Whether that start is kept free: nothing behind it may delay it."""
    text: str
