"""Which rule is responsible for a new denial: not the permit that is nearest now, but the one that granted before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from residency.plans import Ruling
from residency.verdict import Because, Code, Verdict
from residency.vocabulary import HARSHNESS, Answer, Running

_WITHOUT_GRANT = frozenset({Code.NO_PERMIT, Code.NO_RULE, Code.LABEL_MISSING, Code.FACT_UNKNOWN})


def deciding(ruling: Ruling) -> Verdict:
    """The verdict that asks for most: a denial before what is merely unknown, then the harshest rule, then in order.
    It rules over work that became illegal, too (`illegal.py`)."""
    return min(
        ruling.against,
        key=lambda v: (v.answer is not Answer.DENY, HARSHNESS[v.on_change.running], v.flow, v.artefact, v.label),
    )


def harshest(courses: Iterable[Running]) -> Running | None:
    return min(courses, key=lambda one: HARSHNESS[one], default=None)


def denied_by(after: Ruling | None, before: Ruling | None) -> Verdict | None:
    """The verdict that decides against it now, with the reason that is new; None where nothing stands against it."""
    if after is None or not after.against:
        return None
    chief = deciding(after)
    same = (chief.flow, chief.artefact, chief.label)
    earlier = (v for v in before.verdicts if (v.flow, v.artefact, v.label) == same) if before is not None else iter(())
    return blamed(chief, next(earlier, None))


def blamed(after: Verdict, before: Verdict | None) -> Verdict:
    """A denial with the permit that granted before as its reason, where a missing grant is the reason at all. A permit
    that is no longer among the rules that speak of it has no clause to show."""
    if before is None or not before.allowed or after.because.code not in _WITHOUT_GRANT:
        return after
    reasons = (after.because, *after.further)
    lost = next((one for one in reasons if one.rule in before.permits), None)
    if lost is None:
        lost = Because(Code.NO_PERMIT, before.permits[0]) if before.permits else after.because
    return replace(after, because=lost, further=tuple(one for one in reasons if one is not lost))
