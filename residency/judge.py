"""The judge: one question about one label, by every rule that speaks of it, into one verdict.

Forbid wins, require must hold, and without a permit that holds the answer is no. No priorities and no order: every rule
that applies is evaluated, always. A rule that may hold counts against (residency.md section 4):

- a forbid that holds denies; one that may hold (a fact is not known) is indeterminate, which denies too;
- a require that does not hold denies; one that may not hold is indeterminate;
- a permit grants only when it holds. One that may hold grants nothing, and yet its obligations bind: so learning less
  never allows more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from residency import exceptions
from residency.bundle import Bundle
from residency.clauses import Clause, Finding, Group, Operator, Outcome, Quantifier, Sets, Test, Truth, compile_clause
from residency.clauses import evaluate as evaluate_groups
from residency.duties import unfulfilled
from residency.exceptions import Waiver
from residency.facts import FACTS, Gap, Question, earliest
from residency.obligations import Obligation, Union, unite
from residency.rules import Rule
from residency.sets import NOBODY, membership
from residency.verdict import Because, Code, Verdict, Would
from residency.vocabulary import AS_USUAL, UNLABELLED, Answer, Effect, Flow, Mode, OnChange, harshest

Flips = frozenset[tuple[str, Clause]]
"""Clauses by rule whose answer is turned round, to find out what would be if (counterfactual.py)."""

NO_FLIPS: Flips = frozenset()
STAYS_HOME = "unlabelled-stays-home"
"""The rule of unlabelled data where the bundle permits it nothing: it stays in the countries where it lies."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A rule with its clauses as functions. `reads`: the parts of a question that these look at (`Fact.part`).
    `duties` are its obligations, which know that it asks for them."""

    rule: Rule
    groups: tuple[tuple[Quantifier, tuple[Test, ...]], ...]
    reads: frozenset[str]
    duties: tuple[Obligation, ...] = ()

    def ask(self, question: Question, flips: Flips) -> Outcome:
        outcome = evaluate_groups(self.groups, question)
        if not flips or not any((self.rule.id, finding.clause) in flips for finding in outcome.all):
            return outcome
        wanted = Truth.FALSE if self.rule.effect is Effect.FORBID else Truth.TRUE
        turned = tuple((q, tuple(_turned(test, self.rule.id, flips, wanted) for test in ts)) for q, ts in self.groups)
        return evaluate_groups(turned, question)


def _turned(test: Test, rule: str, flips: Flips, wanted: Truth) -> Test:
    def turned(question: Question) -> Finding:
        finding = test(question)
        return replace(finding, truth=wanted, gap=None) if (rule, finding.clause) in flips else finding

    return turned


@dataclass(slots=True)
class Law:
    """A bundle ready to be asked. Make it once with `law_of`; it has no state but its index of rules."""

    bundle: Bundle
    sets: Sets
    compiled: tuple[Compiled, ...]
    _index: dict[tuple[str, Flow], tuple[Compiled, ...]] = field(default_factory=dict)

    def rules_for(self, label: str, flow: Flow) -> tuple[Compiled, ...]:
        """The rules that speak of a label on a flow, in order of id."""
        found = self._index.get((label, flow))
        if found is None:
            found = tuple(one for one in self.compiled if one.rule.speaks_of(label, flow))
            self._index[(label, flow)] = found
        return found

    def exceptions_for(self, question: Question) -> tuple[Waiver, ...]:
        """Exceptions whose scope covers a question, whether they count now or not."""
        return tuple(one for one in self.bundle.exceptions if one.scope.parts >= 2 and one.scope.covers(question))


def law_of(bundle: Bundle) -> Law:
    """Compile a bundle. What is unsound in it denies; `soundness.faults` says what is."""
    known = {one.id: one for one in bundle.sets}
    sets = {name: membership(known, name) for name in sorted(known)}
    compiled = [_compiled(rule, sets) for rule in bundle.rules]
    if not any(UNLABELLED in rule.labels and rule.effect is Effect.PERMIT for rule in bundle.rules):
        compiled.append(_at_home())
    return Law(bundle, sets, tuple(sorted(compiled, key=lambda one: one.rule.id)))


def _compiled(rule: Rule, sets: Sets) -> Compiled:
    duties = tuple(one.asked_by(rule.id, rule.on_change) for one in rule.obligations)
    return Compiled(rule, _compile(rule.when, sets), _reads(rule.when), duties)


def _compile(groups: tuple[Group, ...], sets: Sets) -> tuple[tuple[Quantifier, tuple[Test, ...]], ...]:
    return tuple((group.quantifier, tuple(compile_clause(one, sets) for one in group.clauses)) for group in groups)


def _reads(groups: tuple[Group, ...]) -> frozenset[str]:
    asked = (FACTS.get(clause.fact) for group in groups for clause in group.clauses)
    return frozenset(fact.part for fact in asked if fact is not None)


def _at_home() -> Compiled:
    flows = tuple(flow for flow in sorted(Flow) if flow not in (Flow.REPLICATE, Flow.REPLICATE_SEALED))
    clause = Clause("destination.country", Operator.IN, ("data.home",))
    rule = Rule(STAYS_HOME, (UNLABELLED,), flows, Effect.PERMIT, (Group(Quantifier.ALL, (clause,)),))
    country = FACTS["destination.country"]

    def test(question: Question) -> Finding:
        if not question.home:
            return Finding(replace(clause, fact="data.home"), Truth.UNKNOWN, (), Gap.MISSING)
        seen = country.read(question)
        stays = replace(clause, values=question.home)
        if seen.values is None:
            return Finding(stays, Truth.UNKNOWN, (), seen.gap, seen.changes)
        held = set(seen.values) <= set(question.home)
        return Finding(stays, Truth.TRUE if held else Truth.FALSE, seen.values, None, seen.changes)

    return Compiled(rule, ((Quantifier.ALL, (test,)),), frozenset((country.part, "home")))


# --- one question ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Bench:
    """What one hearing gathers."""

    question: Question
    against: list[tuple[Answer, Because, OnChange]] = field(default_factory=list)
    missed: list[tuple[Outcome, Rule]] = field(default_factory=list)
    permits: list[str] = field(default_factory=list)
    lifted: set[str] = field(default_factory=set)
    duties: list[Obligation] = field(default_factory=list)
    would: list[Would] = field(default_factory=list)
    ends: list[datetime | None] = field(default_factory=list)

    def deny(self, because: Because, on_change: OnChange = AS_USUAL) -> None:
        answer = Answer.INDETERMINATE if because.gap is not None else Answer.DENY
        self.against.append((answer, because, on_change))


def judge(law: Law, question: Question, label: str, flips: Flips = NO_FLIPS) -> Verdict:
    """The verdict on one label of an artefact. Total: it never raises for what is in the bundle or the facts.

    The artefact's name and the chain of its derivation are the caller's to add (`plans.py`).
    """
    bench = _Bench(question)
    waivers = law.exceptions_for(question)
    for compiled in law.rules_for(label, question.flow):
        _hear(law, bench, compiled, waivers, flips)
    if not bench.permits:
        _default(bench, label)
    union = unite(_written_out(law, bench, one) for one in bench.duties)
    for contradicted in contradictions(union):
        bench.deny(*contradicted)
    if bench.permits and not union.conflicts:
        for one, (because, changes) in unfulfilled(union.obligations, question):
            bench.ends.append(changes)
            if because is not None:
                bench.deny(because, one.on_change)
    return _verdict(law, bench, label, union.obligations)


def _hear(law: Law, bench: _Bench, compiled: Compiled, waivers: tuple[Waiver, ...], flips: Flips) -> None:
    """One rule's part in the answer."""
    rule, now = compiled.rule, bench.question.now
    bench.ends.append(rule.changes(now))
    if not rule.in_force(now):
        return
    outcome = compiled.ask(bench.question, flips)
    bench.ends.append(outcome.changes)
    waiver = _lifting(bench, rule, waivers)
    harmless = Truth.FALSE if rule.effect is Effect.FORBID else Truth.TRUE
    if waiver is not None and outcome.truth is not harmless:
        outcome = Outcome(harmless, (), outcome.all, outcome.changes)
        if _decides(rule):
            bench.lifted.add(waiver.id)
            bench.duties += (one.asked_by(waiver.id) for one in waiver.obligations)
    if rule.effect is Effect.PERMIT:
        _hear_permit(bench, compiled, outcome)
    elif outcome.truth is harmless:
        if rule.effect is Effect.REQUIRE and rule.mode is Mode.ENFORCE:
            bench.duties += compiled.duties
    elif rule.mode is Mode.ENFORCE:
        code = Code.FORBIDDEN if rule.effect is Effect.FORBID else Code.REQUIREMENT
        bench.deny(_because(code, rule, outcome), rule.on_change)
    else:
        bench.would.append(_would(rule, outcome))


def _decides(rule: Rule) -> bool:
    return rule.mode is Mode.ENFORCE or (rule.effect is Effect.PERMIT and rule.mode is Mode.WARN)


def _hear_permit(bench: _Bench, compiled: Compiled, outcome: Outcome) -> None:
    rule = compiled.rule
    if not _decides(rule):
        return
    if outcome.truth is Truth.TRUE:
        bench.permits.append(rule.id)
    else:
        bench.missed.append((outcome, rule))
    if outcome.truth is not Truth.FALSE:
        bench.duties += compiled.duties


def contradictions(union: Union) -> Iterator[tuple[Because, OnChange]]:
    """For each pair of duties that cannot both be met: why that denies, by whose rule, and what becomes of work."""
    seen = tuple(duty.value for pair in union.conflicts for duty in pair)
    for pair in union.conflicts:
        asked = [one for one in union.obligations if one.duty in pair]
        rules = sorted({rule for one in asked for rule in one.rules})
        because = Because(Code.OBLIGATIONS_CONFLICT, rules[0] if rules else "", duty=pair[0], seen=seen)
        yield because, harshest(one.on_change for one in asked)


def _lifting(bench: _Bench, rule: Rule, waivers: tuple[Waiver, ...]) -> Waiver | None:
    """The exception that lifts a rule now: never a hard one. Each that names it bounds the verdict."""
    if rule.hard:
        return None
    named = [one for one in waivers if rule.id in one.rules]
    now = bench.question.now
    bench.ends += [exceptions.changes(one, now) for one in named]
    live = [one for one in named if exceptions.is_live(one, now)]
    return max(live, key=lambda one: (one.expires, one.id), default=None)


def _default(bench: _Bench, label: str) -> None:
    """No permit holds. The reason is the permit that came nearest: fewest clauses missing, then by id."""
    if not bench.missed:
        bench.deny(Because(Code.LABEL_MISSING if label == UNLABELLED else Code.NO_RULE))
        return
    may = [(outcome, rule) for outcome, rule in bench.missed if outcome.truth is Truth.UNKNOWN]
    for outcome, rule in sorted(may or bench.missed, key=lambda pair: (len(pair[0].deciding), pair[1].id)):
        code = Code.LABEL_MISSING if label == UNLABELLED else Code.NO_PERMIT
        bench.deny(_because(code, rule, outcome), rule.on_change)


def _because(code: Code, rule: Rule, outcome: Outcome) -> Because:
    """The rule with the first clause that decides: the one that fails, is unknown, or (of a forbid) holds."""
    unknown = outcome.truth is Truth.UNKNOWN
    held = tuple(finding for finding in outcome.all if finding.truth is Truth.TRUE)
    finding = next(iter(outcome.deciding or held or outcome.all), None)
    if finding is None:
        return Because(code, rule.id, law=rule.law, at=rule.at)
    return Because(
        code=Code.FACT_UNKNOWN if unknown else code,
        rule=rule.id,
        clause=finding.clause.text(),
        fact=finding.clause.fact,
        gap=(finding.gap or Gap.MISSING) if unknown else None,
        seen=finding.seen,
        expected=finding.clause.values,
        law=rule.law,
        at=rule.at,
        clause_at=finding.clause.at,
    )


def _would(rule: Rule, outcome: Outcome) -> Would:
    because = _because(Code.FORBIDDEN, rule, outcome)
    answer = Answer.INDETERMINATE if because.gap is not None else Answer.DENY
    return Would(rule.id, rule.mode, answer, because.clause, because.seen, because.clause_at)


def _written_out(law: Law, bench: _Bench, one: Obligation) -> Obligation:
    """An obligation with its sets written out as they are now. A set that is empty now is a country that nobody has."""
    if not any(value.startswith("@") for value in one.countries):
        return one
    now, names = bench.question.now, set[str]()
    for value in one.countries:
        known = law.sets.get(value[1:], NOBODY) if value.startswith("@") else None
        names.update((value,) if known is None else known.names(now))
        if known is not None:
            bench.ends += [known.next_change(name, now) for name in known.spans]
    return replace(one, countries=tuple(sorted(names)) or ("",))


_RANK: Mapping[Code, int] = {code: rank for rank, code in enumerate(Code)}


def _verdict(law: Law, bench: _Bench, label: str, duties: tuple[Obligation, ...]) -> Verdict:
    question = bench.question
    against = _in_order(bench.against)
    answer = against[0][0] if against else Answer.ALLOW
    reasons = tuple(because for _, because, _ in against)
    return Verdict(
        answer=answer,
        flow=question.flow,
        artefact="",
        label=label,
        source=question.source.name if question.source is not None else "",
        destination=question.destination.name,
        because=reasons[0] if reasons else Because(Code.PERMITTED, bench.permits[0]),
        further=reasons[1:],
        permits=tuple(bench.permits),
        exceptions=tuple(sorted(bench.lifted)),
        obligations=duties if answer is Answer.ALLOW else (),
        would=tuple(bench.would),
        on_change=harshest(change for _, _, change in against),
        valid_until=earliest(*bench.ends),
    )


def _in_order(against: Iterable[tuple[Answer, Because, OnChange]]) -> list[tuple[Answer, Because, OnChange]]:
    """What certainly denies before what may; then by code. Within a code they come in the order they were heard, which
    is that of the ids, and for permits that of how near they came."""
    return sorted(against, key=lambda one: (one[0] is not Answer.DENY, _RANK[one[1].code]))


def capped(law: Law, valid_until: datetime | None, now: datetime) -> datetime | None:
    """With the longest time that the bundle lets a verdict live."""
    ttl = law.bundle.settings.max_ttl_s
    return valid_until if ttl is None else earliest(valid_until, now + timedelta(seconds=ttl))
