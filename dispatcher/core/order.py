"""The order of those that wait: priority, then what waiting costs per GPU-hour of the work that is left, with ageing.

Priority comes first and is never overtaken: Kueue orders by it on every worker and preempts by it, and an order of our
own across priorities would be undone there. Within a priority everything is said in one unit, seconds of waiting. Who
waits stands where they would stand had they come at the instant

    turn = waiting since - head start + handicap,    0 <= head start <= ageing,    0 <= handicap <= share weight

- the *head start* grows with the delay price per GPU-hour of remaining work (Smith's rule: what is worth most per hour
  of machine first): each doubling of that price is worth the same, `ageing` / DOUBLINGS;
- the *handicap* grows with what the team had lately (shares.py), so that small teams get their turn.

No class starves. A workload can be passed only by one of its priority whose turn is earlier, so by none that came more
than `ageing + share weight` after it:

    it starts at the latest when everything of its priority or above has run that had come by
    waiting since + ageing + share weight

While nobody's share changes, the order does not depend on the time: all age alike. A line that is sorted stays sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dispatcher.core.decision import Estimate
from dispatcher.core.ids import WorkloadUid
from dispatcher.core.resources import CPU, MIG_PREFIX, WHOLE_GPU, Resources
from dispatcher.core.workload import PodSet

HOUR_S = 3600
PPM = 1_000_000
CPU_MILLI_PER_GPU = 16_000
"""So much CPU, in millicores, is taken for one GPU where work has no GPUs: about what a node has per card."""
_SLICES = 7
"""Compute slices of a whole GPU; a MIG profile "2g.20gb" has two of them."""
_LOWEST, DOUBLINGS = 10, 20
"""Prices per GPU-hour count from 2^10 micro-USD (a tenth of a cent) on, and up to 2^30 (about a thousand USD)."""
_FRACTION = 16
"""Binary places of a logarithm."""


@dataclass(frozen=True, slots=True)
class OrderRules:
    """How waiting is weighed against everything else; queues.yaml's `order`.

    `ageing_s` is the head start of the dearest waiting over the cheapest. `share_half_life_s`: after so long, use of
    the fleet counts half. `share_weight_s`: so much later comes the turn of a team that had the whole fleet.
    `reservations`: at most so many that cannot start keep their earliest start free (backfill.py); 0 = nobody.
    `hold_out_s`: at most so long one waits for a cheaper cluster while another is free (opening.py); 0 = never.
    """

    ageing_s: int = 24 * HOUR_S
    share_half_life_s: int = 24 * HOUR_S
    share_weight_s: int = 12 * HOUR_S
    reservations: int = 4
    hold_out_s: int = 24 * HOUR_S


DEFAULT_RULES = OrderRules()


@dataclass(frozen=True, slots=True)
class Bid:
    """What a workload brings to the line. `gpu_milli`: thousandths of a GPU over all its pods. `estimate`: the run time
    that is left, with its source. The delay price is in micro-USD for one hour of waiting of the whole workload."""

    uid: WorkloadUid
    priority: int
    created_at: datetime
    waiting_since: datetime
    team: str
    gpu_milli: int
    estimate: Estimate
    delay_price_usd_micro_per_hour: int


class Ahead(StrEnum):
    """Why one workload stands before another: the first difference that decides."""

    PRIORITY = "priority"
    WAITED = "waited"
    DELAY_PRICE = "delay-price"
    SHARE = "share"
    TIE = "tie"


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a workload stands, with everything that puts it there.

    `worth_usd_micro` is the delay price per hour of waiting and GPU-hour of remaining work. `share_ppm` is the dominant
    share of its team in millionths, `dominant` the resource that it is a share of ("" = the team has had nothing).
    """

    bid: Bid
    worth_usd_micro: int
    head_start_s: int
    handicap_s: int
    share_ppm: int
    dominant: str
    at: datetime

    @property
    def key(self) -> tuple[int, datetime, datetime, str]:
        """Sorts a line, first in order first."""
        return (-self.bid.priority, self.at, self.bid.created_at, self.bid.uid)


def turn_of(bid: Bid, rules: OrderRules, share_ppm: int = 0, dominant: str = "") -> Turn:
    """The turn of a workload whose team's dominant share is `share_ppm` millionths of the fleet."""
    worth = worth_of(bid.delay_price_usd_micro_per_hour, bid.gpu_milli, bid.estimate.duration_s)
    head_start_s = head_start(worth, rules.ageing_s)
    handicap_s = rules.share_weight_s * min(PPM, max(0, share_ppm)) // PPM
    at = bid.waiting_since + timedelta(seconds=handicap_s - head_start_s)
    return Turn(bid, worth, head_start_s, handicap_s, share_ppm, dominant, at)


def in_order(turns: Iterable[Turn]) -> list[Turn]:
    """The line, whatever the order in which it is given."""
    return sorted(turns, key=lambda turn: turn.key)


def ahead_by(first: Turn, second: Turn) -> Ahead:
    """What puts the first of two neighbours before the second: of what speaks for it within a priority, that which
    speaks most."""
    if first.bid.priority != second.bid.priority:
        return Ahead.PRIORITY
    if first.at == second.at:
        return Ahead.TIE
    waited_s = int((second.bid.waiting_since - first.bid.waiting_since).total_seconds())
    parts = (
        (waited_s, Ahead.WAITED),
        (first.head_start_s - second.head_start_s, Ahead.DELAY_PRICE),
        (second.handicap_s - first.handicap_s, Ahead.SHARE),
    )
    return max(parts, key=lambda part: part[0])[1]


def passable_until(turn: Turn, rules: OrderRules) -> datetime:
    """Work of its priority that comes at this instant or later goes behind it, whatever it is and whoever sends it."""
    return turn.bid.waiting_since + timedelta(seconds=rules.ageing_s + rules.share_weight_s)


def passable_s(turn: Turn, rules: OrderRules, now: datetime) -> int:
    """For how many seconds more others of its priority may come and still go first."""
    return max(0, -int(-(passable_until(turn, rules) - now).total_seconds() // 1))


def worth_of(delay_price_usd_micro_per_hour: int, gpu_milli: int, remaining_s: int) -> int:
    """Micro-USD of one hour of waiting per GPU-hour of work that is left."""
    work = max(1, gpu_milli) * max(1, remaining_s)  # thousandths of a GPU-second
    return max(0, delay_price_usd_micro_per_hour) * HOUR_S * 1000 // work


def head_start(worth_usd_micro: int, ageing_s: int) -> int:
    """Seconds before one whose waiting costs nothing; the same for each doubling, never more than `ageing_s`."""
    above = _log2(worth_usd_micro) - (_LOWEST << _FRACTION)
    return ageing_s * min(max(0, above), DOUBLINGS << _FRACTION) // (DOUBLINGS << _FRACTION)


def _log2(value: int) -> int:
    """The binary logarithm in 2^-16, linear between powers of two: it grows with its argument and has no rounding that
    depends on the machine."""
    if value < 1:
        return 0
    whole = value.bit_length() - 1
    return (whole << _FRACTION) + ((value << _FRACTION) >> whole) - (1 << _FRACTION)


def gpu_milli(pod_sets: Iterable[PodSet]) -> int:
    """The size of a gang in thousandths of a GPU: whole ones, MIG slices by their part of a card, and for pods without
    either their CPU at CPU_MILLI_PER_GPU."""
    return sum(pod_set.count * _gpu_milli(pod_set.per_pod) for pod_set in pod_sets)


def _gpu_milli(per_pod: Resources) -> int:
    found = 1000 * per_pod.get(WHOLE_GPU)
    for name, count in per_pod:
        if name.startswith(MIG_PREFIX):
            slices, _, _ = name.removeprefix(MIG_PREFIX).partition("g")
            found += count * 1000 * (int(slices) if slices.isdigit() else _SLICES) // _SLICES
    return found or 1000 * per_pod.get(CPU) // CPU_MILLI_PER_GPU
