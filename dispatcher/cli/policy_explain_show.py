"""A brief as text and as data: the clusters with their first reasons, then each denial at length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dispatcher.cli.policy_diff_show import verdict_data
from dispatcher.core.brief import Brief, Place
from dispatcher.core.explain_law import because_text, chain_text, duty_text, seen_text, would_text
from residency.counterfactual import WouldAllow
from residency.facts import Attestation
from residency.verdict import Verdict
from residency.vocabulary import Answer

_WORDS = {Answer.ALLOW: "legal", Answer.DENY: "DENY", Answer.INDETERMINATE: "UNKNOWN"}
_INDENT = "  "


def to_text(brief: Brief, *, full: bool) -> str:
    """The table and the block of the first denial; of all of them when `full`."""
    return "".join(f"{line}\n" for line in _lines(brief, full=full))


def _lines(brief: Brief, *, full: bool) -> Iterator[str]:
    work, seal = brief.work, brief.policy.seal
    yield f"{work.key} ({work.stage.value}), by rules {brief.policy.residency.digest[:8]} ({seal.actor})"
    yield from (f"{_INDENT}whatever the rules say: {reason}" for reason in brief.standing)
    yield ""
    rows = [_row(place) for place in brief.places]
    widths = [max(len(row[at]) for row in rows) for at in range(3)] if rows else []
    for row in rows:
        yield "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])).rstrip()
    denied = [place for place in brief.places if place.chief is not None]
    for place in denied if full else denied[:1]:
        yield ""
        yield from _block(brief, place, full=full)
    if len(denied) > 1 and not full:
        yield ""
        yield f"{len(denied) - 1} more: -o wide, or --cluster NAME"
    for place in brief.places if full else ():
        if place.allowed and place.ruling is not None and (place.ruling.obligations or place.ruling.would):
            yield ""
            yield from _granted(place)


def _row(place: Place) -> tuple[str, str, str, str]:
    mark = "*" if place.stands else " "
    if place.ruling is None:
        return f"{mark} {place.cluster}", "DENY", "", "not in the blueprint, so nothing is known of it"
    until = place.ruling.valid_until
    ends = f"until {until:%Y-%m-%d %H:%M}Z" if until is not None else ""
    why = because_text(place.chief.because) if place.chief is not None else ""
    flow = f"{place.chief.flow.value}: " if place.chief is not None else ""
    apart = "" if place.listed else "not among the clusters it may use; "
    return f"{mark} {place.cluster}", _WORDS[place.ruling.answer], ends, f"{apart}{flow}{why}"


def _block(brief: Brief, place: Place, *, full: bool) -> Iterator[str]:
    chief, ruling = place.chief, place.ruling
    assert chief is not None
    assert ruling is not None
    yield f"{_WORDS[chief.answer]} {brief.work.key} on {place.cluster} ({chief.flow.value})"
    yield from _reason(chief)
    attested = _attested(brief, chief)
    yield from _named("attested", attested)
    yield from _named("because", chain_text(chief))
    yield from _named("law", chief.because.law)
    yield from _named("fix", _fix(brief))
    yield from _named("ask", _whom_to_ask(brief, chief))
    for one in place.otherwise:
        yield from _named("would", would_text(one))
    if not place.otherwise:
        yield from _named("would", "no single clause would make it legal")
    for verdict in ruling.against if full else ():
        if verdict is not chief:
            yield from _named("also", f"{verdict.flow.value} of {chain_text(verdict)}: {because_text(verdict.because)}")


def _whom_to_ask(brief: Brief, chief: Verdict) -> str:
    """Who may grant an exception from the rule that decides. What a rule obliges to stands under every exception."""
    rule, terms = chief.because.rule, brief.exceptable.get(chief.because.rule)
    if chief.because.duty is not None:
        return "nobody: an exception lifts no obligation"
    if terms is not None:
        return f"for an exception from {rule}: {', '.join(terms.approvers)}, {terms.max_days} days at most"
    return f"nobody: {rule} takes no exception" if rule else ""


def _reason(verdict: Verdict) -> Iterator[str]:
    why = verdict.because
    yield from _named("rule", f"{why.rule}  {why.at}" if why.rule else why.code.value)
    yield from _named("clause", f"{why.clause}  {why.clause_at}" if why.clause else "")
    if why.gap is not None:
        yield from _named("saw", because_text(why))
    elif why.clause:
        yield from _named("saw", f"{seen_text(why.seen)}, of {verdict.destination}")


def _attested(brief: Brief, verdict: Verdict) -> str:
    policy = brief.policy
    sites = [c.site for c in policy.clusters.values()] + [s.site for s in policy.stores.values()]
    found = next((site.attested for site in sites if site.name == verdict.destination), None)
    return _attestation_text(found) if found is not None else ""


def _attestation_text(found: Attestation) -> str:
    ends = found.ends()
    return f"by {found.by}" + (f", until {ends:%Y-%m-%d}" if ends is not None else "")


def _fix(brief: Brief) -> str:
    return f"legal now: {', '.join(brief.legal)}" if brief.legal else "no cluster that it may use is legal now"


def _granted(place: Place) -> Iterator[str]:
    assert place.ruling is not None
    yield f"legal on {place.cluster}"
    for flow, duty in place.ruling.obligations:
        yield from _named("duty", f"{flow.value}: {duty_text(duty)}")
    for one in place.ruling.would:
        yield from _named(one.mode.value, f"{one.rule} would have denied: {one.clause}  {one.at}")


def _named(name: str, text: str) -> Iterator[str]:
    if text:
        yield f"{_INDENT}{name:<10}{text}"


# --- data ----------------------------------------------------------------------------------------------------------


def to_data(brief: Brief) -> dict[str, Any]:
    """For `-o json|yaml`; keys are stable, and everything is in it."""
    seal = brief.policy.seal
    return {
        "workload": brief.work.key,
        "stage": brief.work.stage.value,
        "at": brief.at.isoformat(),
        "rules": {"digest": brief.policy.residency.digest, "actor": seal.actor, "serial": seal.serial},
        "standing": list(brief.standing),
        "legal": list(brief.legal),
        "clusters": [_place_data(place) for place in brief.places],
        "exceptions": {
            rule: {"approvers": list(terms.approvers), "max_days": terms.max_days}
            for rule, terms in brief.exceptable.items()
        },
    }


def _place_data(place: Place) -> dict[str, Any]:
    ruling = place.ruling
    until = ruling.valid_until if ruling is not None else None
    return {
        "cluster": place.cluster,
        "answer": ruling.answer.value if ruling is not None else Answer.DENY.value,
        "listed": place.listed,
        "stands": place.stands,
        "valid_until": until.isoformat() if until is not None else None,
        "because": verdict_data(place.chief),
        "against": [
            {**(verdict_data(v) or {}), "chain": list(v.chain)} for v in (ruling.against if ruling is not None else ())
        ],
        "obligations": [
            {"flow": flow.value, "duty": duty_text(duty)}
            for flow, duty in (ruling.obligations if ruling is not None else ())
        ],
        "would": [
            {"rule": one.rule, "mode": one.mode.value, "clause": one.clause, "at": str(one.at)}
            for one in (ruling.would if ruling is not None else ())
        ],
        "would_be_legal_if": [_would_data(one) for one in place.otherwise],
    }


def _would_data(one: WouldAllow) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "clause": one.clause.text(),
        "at": str(one.clause.at),
        "otherwise": would_text(one),
    }
