"""An impact as text and as data: what widens first, then what becomes illegal, by name, then the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dispatcher.core.explain_law import because_text, duty_text, targets_text, turn_text
from dispatcher.core.impact import Change, Effect, Impact, Total, Turn
from dispatcher.core.passages import Passage, Rest
from dispatcher.core.policy import Policy
from dispatcher.core.units import money
from residency.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """`base` and `head` as they were written; `with_work`: whether there was any work to look at."""

    base: str
    head: str
    old: Policy
    new: Policy
    at: datetime
    found: Impact
    with_work: bool


def to_text(report: Report, most: int | None) -> str:
    """At most so many entries a section (None: all)."""
    return "".join(f"{line}\n" for line in _lines(report, most))


def _lines(report: Report, most: int | None) -> Iterator[str]:
    found = report.found
    yield f"{report.base} ({report.old.residency.digest[:8]}) -> {report.head} ({report.new.residency.digest[:8]})"
    if found.empty:
        yield _nothing(report)
        return
    yield from _section("widens: data may go where it might not", _passage_lines(found.opened), most)
    yield from _work_section(report, Effect.WIDENED, "widens: work gets clusters that were illegal for it", most)
    yield from _work_section(report, Effect.DENIED_RUNNING, "becomes illegal where it runs", most)
    yield from _work_section(report, Effect.DENIED_NOMINATED, "becomes illegal where it is nominated", most)
    yield from _work_section(report, Effect.DENIED_QUEUED, "queued, and no legal cluster is left", most)
    yield from _section("data lies where it must not any more", [_rest_line(one) for one in found.rests], most)
    yield from _work_section(report, Effect.NARROWED, "fewer legal clusters", most)
    yield from _work_section(report, Effect.BOUND, "gets further duties", most)
    yield from _section("narrows: data may no longer go", _passage_lines(found.closed), most)
    yield ""
    yield from _totals(report)


def _nothing(report: Report) -> str:
    looked = f"{report.found.looked_at} workloads" if report.with_work else "no work was looked at"
    return f"no difference over {len(report.old.data_sets)} data sets, {len(report.old.clusters)} clusters; {looked}"


def _section(title: str, lines: Sequence[str], most: int | None) -> Iterator[str]:
    if not lines:
        return
    yield ""
    yield f"{title} ({len(lines)})"
    for line in lines[:most]:
        yield f"  {line}"
    if most is not None and len(lines) > most:
        yield f"  and {len(lines) - most} more: -o wide"


def _work_section(report: Report, effect: Effect, title: str, most: int | None) -> Iterator[str]:
    yield from _section(title, [_change_line(change, effect) for change in report.found.of(effect)], most)


def _change_line(change: Change, effect: Effect) -> str:
    head = change.work.key
    if effect is Effect.BOUND:
        duties = dict.fromkeys(f"{flow.value}: {duty_text(one)}" for flow, one in change.bound)
        return f"{head}  {'; '.join(duties)}"
    if effect is Effect.WIDENED:
        return f"{head}  {targets_text(change)}; {turn_text(change.opened[0])}{_more(change.opened)}"
    if effect in (Effect.DENIED_RUNNING, Effect.DENIED_NOMINATED):
        course = f"  [{change.course.value}]" if change.course is not None and effect is Effect.DENIED_RUNNING else ""
        left = f"; {len(change.now)} legal clusters left"
        return f"{head}  {turn_text(change.stands[0])}{_more(change.stands)}{course}{left}"
    return f"{head}  {targets_text(change)}; {turn_text(change.closed[0])}{_more(change.closed)}"


def _more(turns: tuple[Turn, ...]) -> str:
    return f" (+{len(turns) - 1})" if len(turns) > 1 else ""


def _passage_lines(found: Sequence[Passage]) -> list[str]:
    """Flows to the same place by the same rule are one line."""
    grouped: dict[tuple[object, ...], list[Passage]] = {}
    for one in found:
        why = because_text(one.because.because) if one.because is not None else ""
        grouped.setdefault((one.place, one.data_sets, one.tenants, one.permits, why), []).append(one)
    return [_passage_line(together) for together in grouped.values()]


def _passage_line(together: Sequence[Passage]) -> str:
    one = together[0]
    flows = ", ".join(p.flow.value for p in together)
    data = ", ".join(one.data_sets[:3]) + (f" +{len(one.data_sets) - 3}" if len(one.data_sets) > 3 else "")
    whose = f" for {', '.join(one.tenants)}" if any(one.tenants) else ""
    why = because_text(one.because.because) if one.because is not None else "it is a new place"
    if one.permits:
        return f"{one.place}: {flows} of {data}{whose}: {', '.join(one.permits)} permits; until now {why}"
    return f"{one.place}: {flows} of {data}{whose}: {why}"


def _rest_line(one: Rest) -> str:
    return f"{one.data_set} in {one.place}: {because_text(one.because.because)}"


def _totals(report: Report) -> Iterator[str]:
    found = report.found
    yield f"passages: {len(found.opened)} open, {len(found.closed)} close; data at rest: {len(found.rests)} illegal"
    if not report.with_work:
        yield "work: none was looked at (--state FILE or --from-daemon)"
        return
    yield f"work: {len(found.changes)} of {found.looked_at} workloads change"
    for effect in Effect:
        total = found.total(effect)
        if total.count:
            yield f"  {effect.value}: {_total_text(total)}"


def _total_text(total: Total) -> str:
    unpriced = f", the price of {total.unpriced} not known" if total.unpriced else ""
    return f"{total.count}, {total.gpu_seconds / 3600:,.0f} GPU-hours, {money(total.usd_micro)}{unpriced}"


# --- data ----------------------------------------------------------------------------------------------------------


def to_data(report: Report) -> dict[str, Any]:
    """For `-o json|yaml`; keys are stable, and everything is in it."""
    found = report.found
    return {
        "base": {"name": report.base, "rules": report.old.residency.digest, "policy": report.old.digest},
        "head": {"name": report.head, "rules": report.new.residency.digest, "policy": report.new.digest},
        "at": report.at.isoformat(),
        "same": found.empty,
        "widened": found.widened,
        "workloads": found.looked_at if report.with_work else None,
        "passages_opened": [_passage_data(one) for one in found.opened],
        "passages_closed": [_passage_data(one) for one in found.closed],
        "data_at_rest": [
            {"data_set": one.data_set, "place": one.place, "because": verdict_data(one.because)} for one in found.rests
        ],
        "changes": [_change_data(one) for one in found.changes],
        "totals": {effect.value: _total_data(found.total(effect)) for effect in Effect},
    }


def _passage_data(one: Passage) -> dict[str, Any]:
    return {
        "flow": one.flow.value,
        "place": one.place,
        "data_sets": list(one.data_sets),
        "tenants": list(one.tenants),
        "permits": list(one.permits),
        "because": verdict_data(one.because),
    }


def _change_data(one: Change) -> dict[str, Any]:
    return {
        "workload": one.work.key,
        "stage": one.work.stage.value,
        "places": [str(name) for name, _ in one.work.places],
        "effects": [effect.value for effect in one.effects],
        "legal_before": list(one.was),
        "legal_after": list(one.now),
        "opened": [_turn_data(turn) for turn in one.opened],
        "closed": [_turn_data(turn) for turn in one.closed],
        "where_it_is": [_turn_data(turn) for turn in one.stands],
        "obligations_added": [{"flow": flow.value, "duty": duty_text(duty)} for flow, duty in one.bound],
        "course": one.course.value if one.course is not None else None,
        "gpu_seconds": one.gpu_seconds,
        "usd_micro": one.usd_micro,
    }


def _turn_data(turn: Turn) -> dict[str, Any]:
    return {"cluster": turn.cluster, "permits": list(turn.permits), "because": verdict_data(turn.because)}


def verdict_data(verdict: Verdict | None) -> dict[str, Any] | None:
    """The reason that decides, with its places as file:line:column."""
    if verdict is None:
        return None
    why = verdict.because
    return {
        "flow": verdict.flow.value,
        "artefact": verdict.artefact,
        "label": verdict.label,
        "code": why.code.value,
        "rule": why.rule or None,
        "rule_at": str(why.at) or None,
        "clause": why.clause or None,
        "clause_at": str(why.clause_at) or None,
        "saw": list(why.seen),
        "law": why.law or None,
    }


def _total_data(total: Total) -> dict[str, int]:
    return {
        "count": total.count,
        "gpu_seconds": total.gpu_seconds,
        "usd_micro": total.usd_micro,
        "unpriced": total.unpriced,
    }
