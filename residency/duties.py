"""Whether the obligations of a grant can be met: by the place that has to, or, where we can see it, in fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from residency.facts import FACTS, Question, vouched
from residency.obligations import AT_THE_SOURCE, CHECKED_HERE, Duty, Obligation
from residency.verdict import Because, Code
from residency.vocabulary import Flow

Check = tuple[Because | None, datetime | None]
"""What stands against a duty (None: nothing), and when that may change."""


def unfulfilled(obligations: Iterable[Obligation], question: Question) -> Iterator[tuple[Obligation, Check]]:
    """One or two checks a duty. Not known is not fulfilled, and says which fact would tell."""
    for one in obligations:
        if one.duty not in CHECKED_HERE:
            yield one, _promised(one, question)
        if one.duty is Duty.ENCRYPT_AT_REST and one.countries:
            yield one, _keys_in(one, question)
        if one.duty is Duty.NO_CHECKPOINT_EGRESS and question.flow is Flow.CHECKPOINT:
            yield one, stays_at_site(one, question)
        if one.duty is Duty.LOCAL_LOGS:
            yield one, _logs_stay(one, question)


def _promised(one: Obligation, question: Question) -> Check:
    """The place says that it implements the duty."""
    at_source = one.duty in AT_THE_SOURCE and question.source is not None
    place = question.source if at_source and question.source is not None else question.destination
    fact = "source.fulfils" if at_source else "destination.fulfils"
    seen = vouched(place.fulfils, place.attested, question.now)
    if seen.values is not None and one.duty.value in seen.values:
        return None, seen.changes
    code = Code.FACT_UNKNOWN if seen.values is None else Code.OBLIGATION_UNSUPPORTED
    values = seen.values or ()
    return (
        Because(code, one.rule, "", fact, seen.gap, values, (one.duty.value,), one.duty, at=one.at),
        seen.changes,
    )


def _keys_in(one: Obligation, question: Question) -> Check:
    seen = FACTS["kms.country"].read(question)
    if seen.values is not None and set(seen.values) <= set(one.countries):
        return None, seen.changes
    code = Code.FACT_UNKNOWN if seen.values is None else Code.OBLIGATION_UNSUPPORTED
    clause = "kms.country in the obligation's kms_country"
    return (
        Because(code, one.rule, clause, "kms.country", seen.gap, seen.values or (), one.countries, one.duty, at=one.at),
        seen.changes,
    )


def stays_at_site(one: Obligation, question: Question) -> Check:
    """A checkpoint is written at the site that makes it: the same provider and region."""
    source, destination = question.source, question.destination
    if source is not None and source.site and source.site == destination.site:
        return None, None
    return (
        Because(
            Code.OBLIGATION_UNSUPPORTED,
            one.rule,
            clause="destination.site equals source.site",
            fact="destination.site",
            seen=(destination.site,) if destination.site else (),
            expected=(source.site,) if source is not None else (),
            duty=one.duty,
            at=one.at,
        ),
        None,
    )


def _logs_stay(one: Obligation, question: Question) -> Check:
    """Logs end in the country of the computation: of the sender for a flow of logs, else of where it is computed."""
    if question.flow is Flow.LOGS:
        sinks, home = FACTS["destination.country"].read(question), FACTS["source.country"].read(question)
        fact = "destination.country"
    else:
        sinks, home = FACTS["destination.log_sink"].read(question), FACTS["destination.country"].read(question)
        fact = "destination.log_sink"
    changes = min((c for c in (sinks.changes, home.changes) if c is not None), default=None)
    if sinks.values is None or home.values is None:
        gap = sinks.gap or home.gap
        return Because(Code.FACT_UNKNOWN, one.rule, fact=fact, gap=gap, duty=one.duty, at=one.at), changes
    if set(sinks.values) <= set(home.values):
        return None, changes
    return (
        Because(
            Code.OBLIGATION_UNSUPPORTED,
            one.rule,
            clause=f"{fact} stays at home",
            fact=fact,
            seen=sinks.values,
            expected=home.values,
            duty=one.duty,
            at=one.at,
        ),
        changes,
    )
