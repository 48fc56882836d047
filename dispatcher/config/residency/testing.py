"""Asking the tests beside the rules, and saying what came out otherwise than expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import replace as with_values
from datetime import datetime

from dispatcher.config.residency.assemble import obligation
from dispatcher.config.residency.testing_files import Case
from dispatcher.config.residency.testing_model import Expected
from residency.judge import Law
from residency.obligations import Obligation
from residency.plans import Ruling, judge_plan
from residency.sets import NOBODY
from residency.verdict import Verdict, Would
from residency.vocabulary import Answer, At, Mode


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was expected otherwise."""

    what: str
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A plan of a test with another answer than expected, and what the law says of it instead."""

    test: str
    at: At
    plan: str
    differences: tuple[Difference, ...]
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running tests gave. `asked` counts the plans."""

    tests: int
    asked: int
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        return not self.failures


def run(law: Law, cases: Iterable[Case]) -> Outcome:
    """Ask every test."""
    tests = asked = 0
    failures: list[Failure] = []
    for case in cases:
        tests += 1
        asked += len(case.plans)
        failures += check(law, case)
    return Outcome(tests, asked, tuple(failures))


def check(law: Law, case: Case) -> Iterator[Failure]:
    """What of one test comes out otherwise."""
    for name, plan in case.plans:
        ruling = judge_plan(law, plan, case.now)
        found = tuple(_compare(law, case.expected, ruling, case.now))
        if found:
            yield Failure(case.name, case.at, name, found, ruling)


def decisive(ruling: Ruling, expected: Expected | None = None) -> Verdict | None:
    """The verdict that refuses: the first with the answer of the whole; of the flow and label asked for, if any."""
    refused = [verdict for verdict in ruling.against if verdict.answer is ruling.answer]
    if expected is not None:
        refused = [v for v in refused if expected.flow in (None, v.flow) and expected.label in (None, v.label)]
    return refused[0] if refused else None


def _compare(law: Law, expected: Expected, ruling: Ruling, now: datetime) -> Iterator[Difference]:
    verdict = decisive(ruling, expected) or decisive(ruling)
    if ruling.answer is not expected.answer:
        yield Difference("answer", expected.answer.value, ruling.answer.value)
    yield from _reason(expected, verdict)
    yield from _rule(law, expected, ruling, verdict)
    if expected.obligations is not None and ruling.allowed:
        wanted = _duties(_written_out(law, obligation(entry), now) for entry in expected.obligations)
        got = _duties(one for _, one in ruling.obligations)
        if wanted != got:
            yield Difference("obligations", ", ".join(wanted) or "none", ", ".join(got) or "none")
    if expected.would is not None:
        yield from _would(expected, ruling.would)
    lifted = tuple(sorted({name for v in ruling.verdicts for name in v.exceptions}))
    if expected.exceptions is not None and tuple(sorted(expected.exceptions)) != lifted:
        yield Difference("exceptions", ", ".join(sorted(expected.exceptions)) or "none", ", ".join(lifted) or "none")
    if expected.valid_until is not None and expected.valid_until != ruling.valid_until:
        got_until = ruling.valid_until.isoformat() if ruling.valid_until is not None else "for ever"
        yield Difference("valid_until", expected.valid_until.isoformat(), got_until)
    if expected.running is not None and verdict is not None and verdict.on_change.running is not expected.running:
        yield Difference("running", expected.running.value, verdict.on_change.running.value)


def _reason(expected: Expected, verdict: Verdict | None) -> Iterator[Difference]:
    if expected.answer is Answer.ALLOW:
        return
    because = verdict.because if verdict is not None else None
    pairs: tuple[tuple[str, object, object], ...] = (
        ("code", expected.code, because.code if because else None),
        ("clause", expected.clause, because.clause if because else None),
        ("fact", expected.fact, because.fact if because else None),
        ("gap", expected.gap, because.gap if because else None),
        ("flow", expected.flow, verdict.flow if verdict else None),
        ("label", expected.label, verdict.label if verdict else None),
    )
    for what, wanted, got in pairs:
        if wanted is not None and wanted != got:
            yield Difference(what, str(wanted), str(got or "-"))


def _rule(law: Law, expected: Expected, ruling: Ruling, verdict: Verdict | None) -> Iterator[Difference]:
    """The rule that decides, and its mode: a slip from enforce to warn would else go unseen."""
    if expected.rule is None:
        return
    deciding = (verdict.because.rule,) if verdict is not None else _permits(ruling)
    if expected.rule not in deciding:
        yield Difference("rule", expected.rule, ", ".join(deciding) or "-")
    mode = next((rule.mode for rule in law.bundle.rules if rule.id == expected.rule), Mode.ENFORCE)
    if mode is not expected.mode:
        yield Difference("mode", f"{expected.mode.value} of {expected.rule}", mode.value)


def _permits(ruling: Ruling) -> tuple[str, ...]:
    return tuple(sorted({rule for verdict in ruling.verdicts for rule in verdict.permits}))


def _would(expected: Expected, would: tuple[Would, ...]) -> Iterator[Difference]:
    assert expected.would is not None
    got = {one.rule: one for one in would}
    wanted = {one.rule: one for one in expected.would}
    for rule in sorted(wanted.keys() | got.keys()):
        one, other = wanted.get(rule), got.get(rule)
        if one is None or other is None:
            said = ("nothing", f"{rule} would {other.answer.value}") if other is not None else (rule, "nothing")
            yield Difference("would", *said)
            continue
        if (one.mode, one.answer) != (other.mode, other.answer):
            yield Difference("would", f"{rule} {one.mode} {one.answer}", f"{rule} {other.mode} {other.answer}")
        if one.clause is not None and one.clause != other.clause:
            yield Difference("would", f"{rule}: {one.clause}", f"{rule}: {other.clause}")


# --- obligations as text -----------------------------------------------------------------------------------------


def _duties(obligations: Iterable[Obligation]) -> tuple[str, ...]:
    return tuple(sorted({duty_text(one) for one in obligations}))


def duty_text(one: Obligation) -> str:
    """Such as "cache_ttl 3600s" or "encrypt_at_rest DE FR"."""
    seconds = "" if one.seconds is None else f"{one.seconds}s"
    flows = " ".join(flow.value for flow in sorted(one.flows))
    parts = (one.duty.value, " ".join(one.countries), seconds, flows, " ".join(sorted(one.words)))
    return " ".join(part for part in parts if part)


def _written_out(law: Law, one: Obligation, now: datetime) -> Obligation:
    """Sets as they are now: so the law says it too."""
    sets = [law.sets.get(value[1:], NOBODY) for value in one.countries if value.startswith("@")]
    plain = {value for value in one.countries if not value.startswith("@")}
    return with_values(one, countries=tuple(sorted(plain.union(*(known.names(now) for known in sets)))))
