"""Words for decisions. The only module that makes text about them; CLI, API, Events and logs all read from here.

Nothing reads these texts back: reasons are codes, and a text may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dispatcher.core.counterfactual import Counterfactual, Difference, Obstacle, counterfactual, differences
from dispatcher.core.counterfactual import counterfactuals as counterfactuals
from dispatcher.core.decision import (
    Candidate,
    Decision,
    Detail,
    Fit,
    LegalDetail,
    Outcome,
    Reason,
    Rejection,
    Resolver,
    Term,
    TermKind,
)
from dispatcher.core.declaration import InputProblem
from dispatcher.core.explain_bills import advice_text as advice_text
from dispatcher.core.explain_bills import bill_text as bill_text
from dispatcher.core.explain_claims import claim_elsewhere_text, claim_unbound_text
from dispatcher.core.explain_near import latency_unknown_text, too_far_text
from dispatcher.core.explain_order import relevance, reserved_text, run_time_text, worth_waiting_text
from dispatcher.core.explain_preemption import by_stopping_text, not_preemptible_text, reclaimed_text
from dispatcher.core.explain_preemption import victim_text as victim_text
from dispatcher.core.explain_topology import apart_text, mismatch_text
from dispatcher.core.ids import ClusterName
from dispatcher.core.resources import is_gpu
from dispatcher.core.units import clock_time, quantity, signed_money
from dispatcher.core.units import money as money

SENTENCE_LIMIT = 500
"""Longest text that `sentence` makes, so that it fits in an Event with room to spare."""

HUB = ClusterName("the hub")
"""Who a reason is told of that concerns no single cluster."""
_TERMS = {
    TermKind.RUN: "run",
    TermKind.DATA_IN: "data",
    TermKind.HOME: "home",
    TermKind.WAITING: "waiting",
    TermKind.INTERRUPTION: "interruption",
    TermKind.STRANDED: "stranded",
    TermKind.LATENCY: "round trip",
    TermKind.ENERGY: "energy",
    TermKind.PREEMPTION: "preemption",
}
_RESOLVERS = {
    Resolver.WAIT: "wait: it can pass by itself",
    Resolver.BURST: "burst: more nodes would help",
    Resolver.MOVE: "move: running work could make room elsewhere",
    Resolver.OWNER: "owner: whoever submitted the job can change it",
    Resolver.OPERATOR: "operator: the platform team can change it",
    Resolver.NOBODY: "nobody: it cannot be lifted",
}
_FITS = {
    Fit.NOW: "fits now",
    Fit.BY_PREEMPTION: "fits by preemption",
    Fit.WHEN_OTHERS_LEAVE: "fits when others leave",
    Fit.NEVER: "never fits as it is",
    Fit.UNKNOWN: "unknown",
}


# --- one sentence ------------------------------------------------------------------------------------------------


def sentence(decision: Decision) -> str:
    """The decision in one sentence of at most 500 characters, for an Event and a log line."""
    winner = decision.candidate(decision.chosen) if decision.chosen is not None else None
    if winner is None:
        return _waiting_sentence(decision)
    head = f"{winner.cluster}: {money(winner.total_usd_micro or 0)} expected ({_terms_in_short(winner)})"
    if winner.fit is Fit.BY_PREEMPTION:
        head = f"{winner.cluster}, {by_stopping_text(winner)}: {head.partition(': ')[2]}"
    if decision.ahead is not None:
        head = f"{winner.cluster}, when others leave: {head.partition(': ')[2]}; nothing fits now"
    if decision.outcome is Outcome.ADD:
        head = f"also {head}, since {', '.join(decision.already_nominated)} has not admitted it"
    others = [c for c in decision.candidates if c.cluster != winner.cluster]
    eligible = sorted((c for c in others if c.eligible), key=lambda c: (c.total_usd_micro or 0, c.cluster))
    if eligible:
        runner_up = eligible[0]
        parts = _differences_in_short(differences(runner_up, winner))
        note = " (by preemption)" if runner_up.fit is Fit.BY_PREEMPTION else ""
        tail = f"; next {runner_up.cluster}{note} {money(runner_up.total_usd_micro or 0)}"
        return _clip(f"{head}{tail}{': ' + parts if parts else ''}")
    refused = [headline(c) for c in others if c.rejections]
    return _listed(f"{head}; no other: ", refused, "") if refused else _clip(head)


def kept_text(kept: Rejection) -> str:
    """Why nothing is nominated whatever fits."""
    return rejection_text(kept, HUB)


def _waiting_sentence(decision: Decision) -> str:
    if decision.kept is not None:
        return _clip(f"waits: {_with_note(kept_text(decision.kept), decision.kept.resolver.value)}")
    count = len(decision.candidates)
    if not count:
        return "waits: there is no cluster to choose from"
    scope = "no further cluster" if decision.already_nominated else "no cluster"
    ordered = sorted(decision.candidates, key=lambda c: (relevance(c), len(c.rejections), c.cluster))
    by_choice = any(r.reason is Reason.WORTH_WAITING for c in ordered for r in c.rejections)
    why = "a full one is worth waiting for" if by_choice else f"{scope} of {count} fits now"
    return _listed(f"waits: {why}: ", [headline(c) for c in ordered], "")


def headline(candidate: Candidate) -> str:
    """The first thing that stands against a candidate, who can lift it, and how many more there are."""
    if not candidate.rejections:
        return f"{candidate.cluster} cannot be priced"
    first = candidate.rejections[0]
    more = f"; {len(candidate.rejections) - 1} more" if len(candidate.rejections) > 1 else ""
    return _with_note(rejection_text(first, candidate.cluster), f"{first.resolver.value}{more}")


def _with_note(text: str, note: str) -> str:
    """Put the note into the brackets that the text ends with, or into brackets of its own."""
    return f"{text[:-1]}; {note})" if text.endswith(")") else f"{text} ({note})"


def _listed(head: str, parts: list[str], tail: str) -> str:
    """As many parts as fit, then how many were left out."""
    text = head
    for at, part in enumerate(parts):
        joined = f"{text}{', ' if at else ''}{part}"
        left = len(parts) - at - 1
        if len(joined) + len(f" and {left} more") + len(tail) > SENTENCE_LIMIT:
            return _clip(f"{text} and {left + 1} more{tail}" if at else f"{joined}")
        text = joined
    return _clip(text + tail)


def _clip(text: str) -> str:
    return text if len(text) <= SENTENCE_LIMIT else f"{text[: SENTENCE_LIMIT - 3]}..."


def _terms_in_short(candidate: Candidate) -> str:
    shown = [t for t in candidate.terms if t.kind is TermKind.RUN or t.amount_usd_micro]
    return ", ".join(f"{_TERMS[t.kind]} {money(t.amount_usd_micro or 0)}" for t in shown)


def _differences_in_short(parts: tuple[Difference, ...]) -> str:
    names = {**_TERMS, TermKind.DATA_IN: "egress"}
    return ", ".join(f"{names[part.kind]} {signed_money(part.usd_micro)}" for part in parts)


# --- rejections --------------------------------------------------------------------------------------------------


def rejection_text(rejection: Rejection, cluster: ClusterName) -> str:
    """What one cluster lacks or forbids, with both values where two disagree (FR-CLI-02)."""
    return f"{cluster} {_PHRASES[rejection.reason](rejection.detail)}"


def resolver_text(resolver: Resolver) -> str:
    return _RESOLVERS[resolver]


def fit_text(fit: Fit) -> str:
    return _FITS[fit]


def _values(values: tuple[str, ...]) -> str:
    return ", ".join(values) if values else "nothing"


def _seen(detail: Detail, lead: str = ": ") -> str:
    return f"{lead}{'; '.join(detail.seen)}" if detail.seen else ""


def _what(detail: Detail) -> str:
    """The resource by the name that people use: a flavor stands for its GPUs."""
    resource = detail.resource or "room"
    if detail.flavor is not None and (detail.resource is None or is_gpu(resource)):
        return str(detail.flavor)
    return f"{resource} of {detail.flavor}" if detail.flavor is not None else resource


def _amounts(detail: Detail, where: str = "") -> str:
    needed, found = detail.needed or 0, detail.found or 0
    return f"needs {quantity(detail.resource, needed)}, {quantity(detail.resource, found)} free{where}"


def _no_quota(detail: Detail) -> str:
    if detail.needed is None or detail.found is None:
        return f"would have to preempt, which is tried in one cluster at a time; {_values(detail.seen)} is nominated"
    short = quantity(detail.resource, detail.needed - detail.found)
    return f"lacks {short} {_what(detail)} ({_amounts(detail, ' in quota')})"


def _no_nodes(detail: Detail) -> str:
    needed, found = detail.needed or 0, detail.found or 0
    if needed <= found:
        largest = quantity(detail.resource, detail.largest_node_free or 0)
        return f"has {_what(detail)} only in pieces ({_amounts(detail, ' on nodes')}, largest node {largest})"
    return f"lacks {quantity(detail.resource, needed - found)} {_what(detail)} ({_amounts(detail, ' on nodes')})"


def _held(detail: Detail) -> str:
    return f"has {_what(detail)} held by {detail.holder or 'an earlier decision'} ({_amounts(detail)})"


def _never(detail: Detail) -> str:
    if detail.domain is not None:
        return apart_text(detail, detail.domain)
    if detail.needed is None:
        return (
            f"has no node of {detail.flavor} whose {detail.holder} fits: asked {_values(detail.expected)}, there "
            + (_values(detail.seen))
        )
    if detail.found == 0 and detail.expected:
        return f"has no quota for {_values(detail.expected)} in this queue (queue offers {_values(detail.seen)})"
    most = quantity(detail.resource, detail.found or 0)
    where = "in quota"
    if detail.largest_node_free is not None:
        where = f"on nodes, largest node {quantity(detail.resource, detail.largest_node_free)}"
    return f"is too small in {_what(detail)} (needs {quantity(detail.resource, detail.needed)}, has {most} {where})"


def _unavailable(detail: Detail) -> str:
    away = f"{_values(detail.seen)} away" if detail.seen else "none there now"
    return f"has {_what(detail)} that is not available now ({_amounts(detail)}, {away})"


def _product(detail: Detail) -> str:
    if detail.holder is None and detail.resource is not None:
        return f"has no {detail.resource} in this queue (queue offers {_values(detail.seen)})"
    return f"has no such flavor (asked {detail.holder} {_values(detail.expected)}, there {_values(detail.seen)})"


def _unknown_product(detail: Detail) -> str:
    asked = _values(detail.expected)
    return f"cannot match {asked}: it is no known product (asked {asked}, {detail.flavor} has {_values(detail.seen)})"


def _mismatch(detail: Detail) -> str:
    return (
        f"has the same product under another label (asked {detail.holder}={_values(detail.expected)}, "
        f"{detail.flavor} has {_values(detail.seen)})"
    )


def _illegal(detail: Detail) -> str:
    return f"is not legal for {detail.subject} ({_law_text(detail)})"


def _indeterminate(detail: Detail) -> str:
    legal = detail.legal
    if legal is None or not legal.fact:
        return f"may not be legal for {detail.subject} (a fact is missing)"
    why = _GAPS.get(legal.gap, "is not known")
    line = f", {detail.line}" if detail.line else ""
    rule = f" for rule {legal.rule}" if legal.rule else ""
    return f"may not be legal for {detail.subject} ({_flows_text(legal)}{legal.fact} {why}{rule}{line})"


_GAPS = {
    "missing": "is not known",
    "unattested": "is attested by nobody",
    "expired": "is no longer attested",
}


def _law_text(detail: Detail) -> str:
    """The rule and what it saw, or that there is none."""
    legal = detail.legal
    what = f"{detail.holder or 'such'} data"
    if legal is None:
        return what
    line = f", {detail.line}" if detail.line else ""
    if legal.duty:
        whose = f" of rule {legal.rule}" if legal.rule else ""
        failing = _DUTIES.get(legal.code, "is not met")
        return f"{_flows_text(legal)}{what}: obligation {legal.duty}{whose} {failing}{line}"
    if not legal.rule:
        return f"{_flows_text(legal)}{what}: {_NO_RULE.get(legal.code, 'no rule permits it')}"
    if not legal.clause:
        return f"{_flows_text(legal)}{what}: rule {legal.rule}{line}"
    seen = f"; there {_values(detail.seen)}" if detail.seen else ""
    said = f"rule {legal.rule} {_EFFECTS.get(legal.code, 'asks for')} {legal.clause}"
    return f"{_flows_text(legal)}{what}: {said}{seen}{line}"


_EFFECTS = {"forbidden": "forbids", "requirement-not-met": "requires"}
_NO_RULE = {
    "label-missing": "nobody has labelled it, so it stays where it is",
    "outlives-authority": "the run would outlive what permits it",
}
_DUTIES = {
    "obligations-conflict": "contradicts another",
    "obligation-unsupported": "is not fulfilled there",
    "fact-unknown": "cannot be checked",
}


def _flows_text(legal: LegalDetail) -> str:
    """Which flows, where it is not computing itself that is refused."""
    return "" if "process" in legal.flows else f"{', '.join(legal.flows)}: "


def _unreachable(state: str) -> Callable[[Detail], str]:
    def phrase(detail: Detail) -> str:
        since = f" since {clock_time(detail.since)}" if detail.since else ""
        return f"is {state}{since}{_seen(detail, ', ')}"

    return phrase


def _since(detail: Detail) -> str:
    return f" at {clock_time(detail.since)}" if detail.since else ""


def _too_many(detail: Detail) -> str:
    return (
        f"has {(detail.needed or 1) - 1} nominations of this priority or above that wait for their cluster, "
        f"and {detail.subject} allows {detail.found}"
    )


def _refused(detail: Detail) -> str:
    which = "its nomination" if detail.holder is None else "nominations of others"
    return f"refuses {which}{_since(detail)}{_seen(detail)}"


def _price_unknown(detail: Detail) -> str:
    return f"has no price for {detail.subject} ({' / '.join(detail.expected) or 'no such flavor in the blueprint'})"


def _data_missing(detail: Detail) -> str:
    gone = f"it is not in {_values(detail.seen)} as declared; " if detail.seen else ""
    made_from = "; ".join(detail.expected) or "nothing that is known"
    return f"would read {detail.subject}, which lies nowhere ({gone}made from {made_from})"


def _over_cost(detail: Detail) -> str:
    return f"costs more than max-cost (forecast {money(detail.needed or 0)}, limit {money(detail.found or 0)})"


_PHRASES: Mapping[Reason, Callable[[Detail], str]] = {
    Reason.NOT_LISTED: lambda d: "is not in the queue's MultiKueueConfig",
    Reason.NOT_IN_BLUEPRINT: lambda d: "is not in the blueprint",
    Reason.MULTIKUEUE_INACTIVE: lambda d: f"is not active for MultiKueue{_seen(d)}",
    Reason.TERMINATING: lambda d: "is being deleted on the hub",
    Reason.STALE: _unreachable("unreachable"),
    Reason.BLIND: _unreachable("not read yet: unreachable"),
    Reason.NAMESPACE_MISSING: lambda d: f"has no namespace {d.subject}",
    Reason.LOCAL_QUEUE_MISSING: lambda d: f"has no LocalQueue {d.subject}",
    Reason.QUEUE_MISSING: lambda d: f"has no ClusterQueue {d.subject}",
    Reason.QUEUE_INACTIVE: lambda d: (
        f"has an inactive queue {d.subject}" + (f" (no flavor {d.flavor})" if d.flavor else "")
    ),
    Reason.QUEUE_STOPPED: lambda d: f"has stopped queue {d.subject} ({_values(d.seen)})",
    Reason.NAME_TAKEN: lambda d: f"has another {d.subject}, which is not ours",
    Reason.NOT_IN_ANNOTATION: lambda d: f"is outside the job's clusters ({_values(d.expected)})",
    Reason.NO_SUCH_PRODUCT: _product,
    Reason.UNKNOWN_PRODUCT: _unknown_product,
    Reason.LABEL_MISMATCH: _mismatch,
    Reason.TAINT: lambda d: f"has {d.flavor} behind a taint that {d.subject} does not tolerate ({_values(d.seen)})",
    Reason.QUOTA: _no_quota,
    Reason.NODES: _no_nodes,
    Reason.TOPOLOGY: lambda d: apart_text(d, d.domain) if d.domain is not None else _no_nodes(d),
    Reason.TOPOLOGY_MISMATCH: mismatch_text,
    Reason.HELD: _held,
    Reason.NEVER_FITS: _never,
    Reason.NODES_UNAVAILABLE: _unavailable,
    Reason.RESIDENCY: _illegal,
    Reason.RESIDENCY_INDETERMINATE: _indeterminate,
    Reason.RULES_MISSING: lambda d: "may take nothing: there are no rules that may be used",
    Reason.RULES_TOO_OLD: lambda d: f"may take no classified data: nobody vouches for {d.subject} any more{_since(d)}",
    Reason.RULES_EXPIRED: lambda d: f"may take no classified data: {d.subject} has expired{_since(d)}",
    Reason.CLOCK_WRONG: lambda d: "may take no classified data: the daemon's clock has gone back",
    Reason.MAX_COST: _over_cost,
    Reason.PRICE_UNKNOWN: _price_unknown,
    Reason.PRICE_OLD: lambda d: f"has a price that is too old ({d.subject}: {_values(d.seen)}; {_values(d.expected)})",
    Reason.DATA_SIZE_UNKNOWN: lambda d: (
        f"would read {d.subject}, whose size is not known"
        + (f" (add entrepot.dev/{_values(d.expected)})" if d.expected else "")
    ),
    Reason.EGRESS_UNKNOWN: lambda d: (
        f"has no known route price for {d.subject} (from {_values(d.seen)} to {_values(d.expected)})"
    ),
    Reason.DATA_MISSING: _data_missing,
    Reason.CATALOG_OLD: lambda d: (
        f"would read {d.subject}, of which nothing is known any more: its catalog last answered{_since(d)}"
    ),
    Reason.CLAIM_UNBOUND: claim_unbound_text,
    Reason.CLAIM_ELSEWHERE: claim_elsewhere_text,
    Reason.HOME_UNKNOWN: lambda d: (
        f"would write to {d.subject} an amount that is not known (add entrepot.dev/{_values(d.expected)})"
    ),
    Reason.INTERRUPTION_UNKNOWN: lambda d: (
        f"has {d.flavor} on spot, and nobody knows how long that lasts (price of {d.subject}: no interrupted_after)"
    ),
    Reason.ENERGY_UNKNOWN: lambda d: (
        f"has no known energy use for {d.flavor}, which has a price (fleet.yaml: {_values(d.expected)})"
    ),
    Reason.TOO_FAR: too_far_text,
    Reason.LATENCY_UNKNOWN: latency_unknown_text,
    Reason.ALREADY_NOMINATED: lambda d: "is nominated already",
    Reason.EVICTED_HERE: lambda d: "has evicted this attempt",
    Reason.FAILED_HERE: lambda d: f"failed this workload{_since(d)} ({_values(d.seen)})",
    Reason.RESERVED: reserved_text,
    Reason.WORTH_WAITING: worth_waiting_text,
    Reason.TOO_MANY_OUTSTANDING: _too_many,
    Reason.NOMINATION_REFUSED: _refused,
    Reason.RECLAIMED: reclaimed_text,
    Reason.NOT_PREEMPTIBLE: not_preemptible_text,
    Reason.OUTCOME_UNKNOWN: lambda d: f"may not run it again: it may have ended unseen{_since(d)}",
}


# --- money -------------------------------------------------------------------------------------------------------


def term_text(term: Term) -> str:
    """ "data $19.10", or "data unknown"."""
    amount = "unknown" if term.amount_usd_micro is None else money(term.amount_usd_micro)
    return f"{_TERMS[term.kind]} {amount}"


def estimate_text(decision: Decision) -> str:
    return run_time_text(decision.estimate)


# --- what would have changed it ----------------------------------------------------------------------------------


def counterfactual_text(found: Counterfactual) -> str:
    """What would have had to change for this cluster to be chosen."""
    if found.obstacle is Obstacle.REJECTED:
        return _rejected_text(found)
    if found.obstacle is Obstacle.UNPRICED:
        return f"{found.cluster}: cannot be priced"
    if found.obstacle is Obstacle.TIE:
        return f"{found.cluster}: costs the same; the choice between equals is by a stable hash"
    if found.obstacle is Obstacle.LOSS_UNKNOWN:
        return f"{found.cluster}: would have to stop work of which nobody knows what that costs"
    if found.obstacle is Obstacle.PREEMPTION:
        return f"{found.cluster}: would have to preempt, and what fits now goes first"
    parts = _differences_in_short(found.differences)
    dearer = [part for part in found.differences if part.usd_micro > 0]
    most = f"; most of it {_TERMS[dearer[0].kind]}" if len(dearer) > 1 else ""
    gap = money(found.gap_usd_micro or 0)
    return f"{found.cluster}: would have been chosen {gap} cheaper ({parts}{most})"


def _rejected_text(found: Counterfactual) -> str:
    reasons = "; ".join(
        f"{rejection_text(r, found.cluster).removeprefix(f'{found.cluster} ')} [{r.resolver.value}]"
        for r in found.blocking
    )
    text = f"{found.cluster}: {reasons}"
    if found.alone:
        text += "; nothing else stood in the way"
    if found.gap_usd_micro is not None and found.would_win is not None:
        gap = abs(found.gap_usd_micro)
        text += f", and it would have been {money(gap)} {'cheaper' if found.would_win else 'dearer'} than the choice"
    return text


def why_not_text(decision: Decision, cluster: ClusterName) -> str:
    """Why not this cluster: everything that stood in its way, first filter first, or what it would have cost more."""
    candidate = decision.candidate(cluster)
    if candidate is None:
        return f"{cluster} was not known to the hub or the blueprint when this was decided"
    if cluster == decision.chosen:
        return f"{cluster} was chosen: {sentence(decision)}"
    winner = decision.candidate(decision.chosen) if decision.chosen is not None else None
    return counterfactual_text(counterfactual(candidate, winner))


# --- input -------------------------------------------------------------------------------------------------------


def problem_text(problem: InputProblem) -> str:
    """ "entrepot.dev/datasets = 'radar-2062': data set ... is not in the catalog; did you mean 'radar-2026'?" """
    value = f" = {problem.value!r}" if problem.value else ""
    return _clip(f"{problem.key}{value}: {problem.rule}; {problem.fix}")


def problems_text(problems: tuple[InputProblem, ...]) -> str:
    """All of them, for an Event."""
    return _clip("; ".join(problem_text(problem) for problem in problems))
