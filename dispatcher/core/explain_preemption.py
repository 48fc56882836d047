"""Words for preemptions: who would be stopped, what that costs them, and where nobody is. A part of `explain`."""

from __future__ import annotations

from dispatcher.core.decision import Candidate, Detail, Victim
from dispatcher.core.units import clock_time, money, span

NAMED = 2
"""So many are named in a sentence; the rest is counted."""


def by_stopping_text(candidate: Candidate) -> str:
    """How room is made there, in a few words."""
    victims = candidate.preempts
    if not victims:
        return "when those leave who are on their way out"
    named = ", ".join(victim.key for victim in victims[:NAMED])
    more = f" and {len(victims) - NAMED} more" if len(victims) > NAMED else ""
    if all(victim.reclaimed for victim in victims):
        return f"by taking back what {named}{more} borrowed"
    return f"by stopping {named}{more}"


def victim_text(victim: Victim) -> str:
    """ "team/train (8 GPUs, priority 1000, training) gives way: loses 42min and 5min to restart, $12.10"."""
    kind = victim.workload_class or "class not known"
    ours = "" if victim.ours else ", local work"
    does = "gives back what it borrowed" if victim.reclaimed else "gives way"
    return f"{victim.key} ({victim.gpus} GPUs, priority {victim.priority}, {kind}{ours}) {does}: {_loss_text(victim)}"


def _loss_text(victim: Victim) -> str:
    saved = f", saved every {span(victim.checkpoint_s)}" if victim.checkpoint_s is not None else ""
    lost = f"loses {span(victim.lost_s or 0)} of work{saved}"
    if victim.restart_s:
        lost += f", {span(victim.restart_s)} to restart"
    if victim.cost_usd_micro is not None:
        return f"{lost}, {money(victim.cost_usd_micro)}"
    if victim.workload_class is None:
        return f"{lost}; what that costs is not known: queue {victim.queue} is not in the plan"
    return f"{lost}; what that costs is not known: no price for what it holds"


def reclaimed_text(detail: Detail) -> str:
    since = f" at {clock_time(detail.since)}" if detail.since else ""
    return f"would have to lend to {detail.subject} what its owner took back from this workload{since}"


def not_preemptible_text(detail: Detail) -> str:
    named = ", ".join(detail.seen[:NAMED])
    more = f" and {len(detail.seen) - NAMED} more" if len(detail.seen) > NAMED else ""
    kinds = ", ".join(detail.expected)
    return f"would have to stop {named}{more}, and work of class {kinds} is not stopped for more urgent work"
