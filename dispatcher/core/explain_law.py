"""Verdicts in words. As `explain.py`, the only place where they become text; no code reads it back."""

from __future__ import annotations

from dispatcher.core.impact import Change, Turn
from residency.counterfactual import WouldAllow
from residency.facts import Gap
from residency.obligations import Obligation
from residency.verdict import Because, Code, Verdict
from residency.vocabulary import Effect

_PLAIN = {
    Code.NO_PERMIT: "no rule permits it any more",
    Code.NO_RULE: "no rule permits it",
    Code.LABEL_MISSING: "nobody has classified it, so it stays where it lies",
    Code.OUTLIVES_AUTHORITY: "the run would outlive its grant",
    Code.OBLIGATIONS_CONFLICT: "duties contradict each other",
}
_GAPS = {
    Gap.MISSING: "is not known",
    Gap.UNATTESTED: "is attested by nobody",
    Gap.EXPIRED: "was attested, and is no longer",
}
_VERBS = {Code.FORBIDDEN: "forbids", Code.REQUIREMENT: "requires"}


def because_text(because: Because) -> str:
    """The deciding rule with its clause, what it saw and where it is written, in one line."""
    place = because.clause_at if because.clause_at.file else because.at
    line = f", {place}" if place.file else ""
    if because.duty is not None and because.code is not Code.OBLIGATIONS_CONFLICT:
        whose = f" of rule {because.rule}" if because.rule else ""
        return f"duty {because.duty.value}{whose} is not fulfilled there{line}"
    if because.gap is not None:
        asked = f" for rule {because.rule}" if because.rule else ""
        return f"{because.fact} {_GAPS[because.gap]}{asked}{line}"
    if not because.clause:
        named = f": it was {because.rule}" if because.rule and because.code is Code.NO_PERMIT else ""
        rule = f"rule {because.rule} {_VERBS[because.code]} it" if because.code in _VERBS else ""
        return f"{rule or _PLAIN.get(because.code, because.code.value)}{named}{line}"
    saw = f" (saw {seen_text(because.seen)})" if because.seen else ""
    return f"rule {because.rule} {_VERBS.get(because.code, 'asks for')} {because.clause}{saw}{line}"


def seen_text(seen: tuple[str, ...]) -> str:
    return ", ".join(seen) if seen else "nothing"


def chain_text(verdict: Verdict) -> str:
    """From what the hop carries back to where its label comes from."""
    way = " <- ".join(verdict.chain) if verdict.chain else verdict.artefact
    return f"{way} ({verdict.label})"


def turn_text(turn: Turn) -> str:
    """A cluster that opens or closes, with the rule that is responsible."""
    if turn.permits:
        before = f"; until now {because_text(turn.because.because)}" if turn.because is not None else ""
        return f"{turn.cluster}: {', '.join(turn.permits)} would permit it{before}"
    if turn.because is None:
        return f"{turn.cluster}: it is not in the new blueprint"
    data = turn.because.chain[-1] if turn.because.chain else turn.because.artefact
    return f"{turn.cluster}: {turn.because.flow.value} of {data}: {because_text(turn.because.because)}"


def targets_text(change: Change) -> str:
    """How many clusters remain."""
    return f"{len(change.was)} -> {len(change.now)} clusters"


def duty_text(one: Obligation) -> str:
    parts = []
    if one.countries:
        parts.append(f"keys in {', '.join(one.countries)}")
    if one.seconds is not None:
        parts.append(f"{one.seconds} s")
    parts += [", ".join(one.words)] if one.words else []
    return f"{one.duty.value}{f' ({chr(59).join(parts)})' if parts else ''}"


def would_text(one: WouldAllow) -> str:
    """A counterfactual: one clause that would have to be otherwise."""
    flows = ", ".join(flow.value for flow in one.flows)
    denied = "not " if one.effect is Effect.FORBID else ""
    saw = f", not {seen_text(one.seen)}" if one.seen else " (now: nothing)"
    where = f"  {one.clause.at}" if one.clause.at.file else ""
    return f"be legal ({flows}) if it were so that {denied}{one.clause.text()}{saw if not denied else ''}{where}"
