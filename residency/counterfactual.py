"""What would have to be otherwise: turn one clause round, judge again, and see (residency.md section 1.2.8)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from residency.clauses import Clause
from residency.facts import Question
from residency.judge import Flips, Law, judge
from residency.plans import Plan, Ruling, judge_plan, one_by_one
from residency.verdict import Verdict
from residency.vocabulary import Effect, Flow


@dataclass(frozen=True, slots=True)
class WouldAllow:
    """The plan (`whole`), or at least one of its verdicts, would be allowed if this clause of this rule were otherwise:
    true for permits and requirements, false for what forbids. `flows` are those that it concerns."""

    rule: str
    effect: Effect
    clause: Clause
    seen: tuple[str, ...]
    flows: tuple[Flow, ...]
    whole: bool


def would_allow(law: Law, plan: Plan, now: datetime) -> tuple[WouldAllow, ...]:
    """Single clauses whose turning lets the plan, or a part of it, through: those that free the whole plan first."""
    before = judge_plan(law, plan, now)
    if before.allowed:
        return ()
    found: list[WouldAllow] = []
    for rule, effect, clause, seen in _suspects(law, plan, now):
        flips: Flips = frozenset(((rule, clause),))

        def turned(question: Question, label: str, flips: Flips = flips) -> Verdict:
            return judge(law, question, label, flips)

        after = judge_plan(law, plan, now, one_by_one(turned))
        freed = _freed(before, after)
        if freed:
            found.append(WouldAllow(rule, effect, clause, seen, freed, after.allowed))
    return tuple(sorted(found, key=lambda one: (not one.whole, one.rule, one.clause.text())))


def _suspects(law: Law, plan: Plan, now: datetime) -> list[tuple[str, Effect, Clause, tuple[str, ...]]]:
    """The clauses that decide against any hop, each once, by rule."""
    found: dict[tuple[str, Clause], tuple[str, Effect, Clause, tuple[str, ...]]] = {}
    for hop in plan.hops:
        question = plan.question(hop, now)
        for label in hop.cargo.labels.names:
            for compiled in law.rules_for(label, hop.flow):
                outcome = compiled.ask(question, frozenset())
                forbids = compiled.rule.effect is Effect.FORBID
                for finding in outcome.all if forbids else outcome.deciding:
                    key = (compiled.rule.id, finding.clause)
                    found.setdefault(key, (compiled.rule.id, compiled.rule.effect, finding.clause, finding.seen))
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1].text()))]


def _freed(before: Ruling, after: Ruling) -> tuple[Flow, ...]:
    was = {(v.flow, v.artefact, v.source, v.destination, v.label) for v in before.against}
    now_allowed = {(v.flow, v.artefact, v.source, v.destination, v.label) for v in after.verdicts if v.allowed}
    return tuple(sorted({key[0] for key in was & now_allowed}))
