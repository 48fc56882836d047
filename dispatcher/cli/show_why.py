"""`why` and `why-not` as a page for a person: the answer first, then the money, then the reasons, then the past."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dispatcher.cli.printing import clock, grid
from dispatcher.core.counterfactual import Obstacle
from dispatcher.core.decision import TermKind
from dispatcher.core.explain_order import ahead_text
from dispatcher.core.idle import Stage
from dispatcher.core.snapshot import Link
from dispatcher.web.models import (
    CandidateView,
    DecisionSummary,
    DecisionView,
    Job,
    RejectionView,
    StateCode,
    WaitView,
    WhyNotCode,
    WhyNotView,
    WhyView,
)
from dispatcher.web.status import span

_GOOD = frozenset({StateCode.RUNNING, StateCode.FINISHED, StateCode.FINISHING, StateCode.STARTING})
_BAD = frozenset(
    {
        StateCode.EVICTED_ON_WORKER,
        StateCode.MISSING_ON_WORKER,
        StateCode.UNSEEN,
        StateCode.HELD,
        StateCode.EVICTING,
        StateCode.DISPATCH_FAILED,
    }
)
_HISTORY = 8
_ALWAYS = (TermKind.RUN, TermKind.DATA_IN, TermKind.WAITING)
"""Terms that are shown where all of them are nothing: what people ask for first."""
_RECORDS = "from records alone: what it does now is not known while the daemon is down"


def why_page(view: WhyView, out: Console, wide: bool) -> None:
    _title(out, view.job, view.namespace, view.name)
    _answer(view, out)
    _problems(view, out)
    _findings(view, out)
    _turn(view, out)
    if view.decision is not None:
        _cost_table(view.decision.candidates, out)
        _advice(view.decision, out)
        _victims(view.decision, out)
        _bills(view.decision, out, wide)
        if not view.waits_for:
            _rejections(view.decision, out)
    _waits(view, out)
    _gaps(view, out)
    _changes(view, out)
    _runs(view, out)
    _history(view.history, view.history_error, out)
    _footer(view, out)


def _turn(view: WhyView, out: Console) -> None:
    """Its place among those that wait, why it is there, and when it is expected to start."""
    told = view.workload
    if told is None or told.turn is None:
        return
    _section(out, f"Its turn: {told.order} of those that wait")
    lines = [told.turn.text]
    if told.turn.behind is not None and told.turn.behind_by is not None:
        lines.append(ahead_text(told.turn.behind, told.turn.behind_by))
    if told.turn.passable_s:
        lines.append(f"what comes in the next {span(told.turn.passable_s)} may still go first; nothing after that")
    if told.expected is not None:
        lines.append(f"expected to start {told.expected.text}")
    elif told.expected_unknown is not None:
        lines.append(f"when it starts is {told.expected_unknown}")
    for line in lines:
        _indented(out, Text(line))


def _runs(view: WhyView, out: Console) -> None:
    """What it has used so far: its ended runs, newest first."""
    if not view.runs:
        return
    _section(out, "What it used")
    for run in view.runs[:_HISTORY]:
        _indented(out, Text(f"{clock(run.begun_at)}  {run.text}"))


def why_not_page(view: WhyNotView, out: Console, wide: bool) -> None:
    _title(out, view.job, view.namespace, view.name)
    if view.candidate is None or not view.candidate.rejections:
        out.print(Text(view.text, style="bold"))
    else:
        _section(out, f"Why not {view.cluster}")
        _reason_lines(view.candidate.rejections, out)
    candidates = [found for found in (view.chosen, view.candidate) if found is not None]
    if view.code is WhyNotCode.CHOSEN:
        candidates.pop()
    if any(found.terms for found in candidates):
        _cost_table(candidates, out)
    decision = view.decision
    out.print()
    _id_line(decision, out)
    if view.from_records:
        out.print(Text(_RECORDS, style="yellow"))


def decision_page(view: DecisionView, out: Console, wide: bool) -> None:
    _title(out, view.job, view.namespace, view.name)
    out.print(Text(view.text, style="bold"))
    _cost_table(view.candidates, out)
    _advice(view, out)
    _victims(view, out)
    _bills(view, out, wide)
    _rejections(view, out)
    out.print()
    _decision_line(view, out)


# --- parts -------------------------------------------------------------------------------------------------------


def _title(out: Console, job: Job | None, namespace: str, name: str) -> None:
    title = f"{namespace}/{job.name}" if job is not None else f"{namespace}/{name}"
    rest = f"  {job.kind}, Workload {name}" if job is not None else "  Workload"
    out.print(Text.assemble((title, "bold"), (rest, "dim")))


def _answer(view: WhyView, out: Console) -> None:
    """What it does now, and then the decision behind it; a wait's reasons follow below, one by one."""
    told = view.workload
    if told is None:
        out.print(Text(view.headline, style="bold"))
        return
    out.print(Text(told.state.text, style=_style(told.state.code)))
    if told.idle is not None:
        out.print(Text(told.idle.text, style="" if told.idle.stage is Stage.USED else "yellow"))
    if not view.problems and not view.waits_for and told.reason != told.state.text:
        out.print(told.reason, markup=False)


def _style(code: StateCode) -> str:
    return "bold green" if code in _GOOD else "bold red" if code in _BAD else "bold yellow"


def _section(out: Console, title: str) -> None:
    out.print()
    out.print(Text(title, style="bold"))


def _indented(out: Console, what: RenderableType, by: int = 2) -> None:
    out.print(Padding(what, (0, 0, 0, by), expand=False))


def _gaps(view: WhyView, out: Console) -> None:
    if not view.gaps:
        return
    _section(out, "Two accounts of what is in use")
    for gap in view.gaps:
        _indented(out, Text(f"{gap.cluster}: {gap.text}"))


def _findings(view: WhyView, out: Console) -> None:
    for finding in view.findings:
        out.print(f"{finding.code}: {finding.text}")


def _problems(view: WhyView, out: Console) -> None:
    if not view.problems:
        return
    _section(out, "Input that must be corrected first")
    for problem in view.problems:
        _indented(out, Text(f"{problem.key} = {problem.value!r}: {problem.rule}"))
        _indented(out, Text(f"fix: {problem.fix}", style="green"), 4)


def _cost_table(candidates: Sequence[CandidateView], out: Console) -> None:
    if not candidates:
        return
    _section(out, "What each cluster would cost")
    terms = [term for found in candidates for term in found.terms]
    kinds = [k for k in TermKind if any(t.kind is k and (k in _ALWAYS or t.amount.usd_micro != 0) for t in terms)]
    rows = _costs_down(candidates, kinds)
    if 2 + Measurement.get(out, out.options, rows).maximum <= out.width:
        _indented(out, rows)
    else:
        _costs_across(candidates, kinds, out)


def _costs_down(candidates: Sequence[CandidateView], kinds: Sequence[TermKind]) -> Table:
    """A row a cluster: amounts of one kind stand below each other."""
    headers = [kind.value.upper() for kind in kinds]
    table = grid("", "CLUSTER", "TOTAL", *headers, "FIT", "SEEN", right=frozenset({"TOTAL", "SEEN", *headers}))
    for found in candidates:
        table.add_row(_mark(found), found.cluster, *_costs(found, kinds), style=_cost_style(found))
    return table


def _costs_across(candidates: Sequence[CandidateView], kinds: Sequence[TermKind], out: Console) -> None:
    """A column a cluster, for a narrow screen: as many side by side as it holds. An amount is never cut."""
    labels = ["TOTAL", *(kind.value.upper() for kind in kinds), "FIT", "SEEN"]
    shown, rest = list(candidates), list[CandidateView]()
    while shown:
        heads = [f"{_mark(found)} {found.cluster}".strip() for found in shown]
        table = grid("", *heads, right=frozenset(heads))
        for label, *cells in zip(labels, *(_costs(found, kinds) for found in shown), strict=True):
            styled = (Text(cell, style=_cost_style(found)) for cell, found in zip(cells, shown, strict=True))
            table.add_row(label, *styled)
        if len(shown) > 1 and 2 + Measurement.get(out, out.options, table).maximum > out.width:
            rest.insert(0, shown.pop())
            continue
        _indented(out, table)
        shown, rest = rest, []
        if shown:
            out.print()


def _costs(found: CandidateView, kinds: Sequence[TermKind]) -> list[str]:
    """Its total, its terms, how it fits and how old the view of it was."""
    amounts = {term.kind: term.amount.text for term in found.terms}
    total = found.total.text if found.eligible or found.chosen else _rejected(found)
    seen = span(found.data_age_s) if found.data_age_s is not None else "never"
    return [total, *(amounts.get(kind, "-") for kind in kinds), found.fit.value, seen]


def _cost_style(found: CandidateView) -> str:
    return "bold green" if found.chosen else "" if found.eligible else "dim"


def _mark(found: CandidateView) -> str:
    return ">" if found.chosen else "x" if not found.eligible else ""


def _rejected(found: CandidateView) -> str:
    return "rejected" if found.rejections else "unknown"


def _advice(decision: DecisionView, out: Console) -> None:
    """What the owner could do to lose less where it was sent."""
    for found in decision.candidates:
        for term in found.terms if found.chosen else ():
            if term.advice is not None:
                _indented(out, Text(f"advice: {term.advice.text}", style="yellow"))


def _victims(decision: DecisionView, out: Console) -> None:
    """Who would be stopped on each cluster where only that makes room, the choice first."""
    for found in decision.candidates:
        if found.preempts:
            _section(out, f"Whom a start on {found.cluster} {'stops' if found.chosen else 'would stop'}")
            for victim in found.preempts:
                _indented(out, Text(victim.text))


def _bills(decision: DecisionView, out: Console, wide: bool) -> None:
    """With -o wide: each amount with the quantities, unit prices and sources that it is made of."""
    for found in decision.candidates if wide else ():
        lines = [line.text for term in found.terms for line in term.bill]
        unknown = [term.unknown.text for term in found.terms if term.unknown is not None]
        if lines or unknown:
            _section(out, f"How {found.cluster}'s cost is made up")
            for text in (*_places(found), *lines, *unknown):
                _indented(out, Text(text))


def _places(found: CandidateView) -> tuple[str, ...]:
    queue = f"queue {found.queue}" if found.queue is not None else "no queue"
    return (queue, *(f"{p.pod_set}: flavor {p.flavor}, pods {p.pods}, nodes {p.nodes}" for p in found.placements))


def _rejections(decision: DecisionView, out: Console) -> None:
    found = [rejection for c in decision.candidates for rejection in c.rejections]
    if found:
        _section(out, "Rejected")
        _reason_lines(found, out)


def _reason_lines(reasons: Sequence[RejectionView | WaitView], out: Console) -> None:
    """One reason a line, before it who can resolve it. The text names the cluster."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for reason in reasons:
        table.add_row(reason.resolver.value, Text(reason.text))
    _indented(out, table)


def _waits(view: WhyView, out: Console) -> None:
    if view.waiting_since is None or not view.waits_for:
        return
    order = f", number {view.workload.order} in line" if view.workload is not None and view.workload.order else ""
    _section(out, f"Waits since {clock(view.waiting_since)}{order}")
    _reason_lines(view.waits_for, out)


def _changes(view: WhyView, out: Console) -> None:
    """Reasons that stand together with others are in the list above already: one change would not have been enough."""
    found = [c for c in view.counterfactuals if c.alone or c.would_win or c.obstacle is not Obstacle.REJECTED]
    if not found:
        return
    _section(out, "What would have changed the answer")
    for change in found:
        _indented(out, Text(change.text))


def _history(history: Sequence[DecisionSummary], error: str | None, out: Console) -> None:
    if error is not None:
        _section(out, "History")
        _indented(out, Text(f"cannot be read now: {error}", style="red"))
    if not history:
        return
    _section(out, "History, newest first")
    table = grid("DECIDED", "TRY", "OUTCOME", "CLUSTER", "COST", "DECISION", right=frozenset({"TRY", "COST"}))
    for decision in history[:_HISTORY]:
        cost = decision.total.text if decision.total is not None else "-"
        row = (decision.outcome.value, decision.chosen or "-", cost, decision.id)
        table.add_row(clock(decision.decided_at), str(decision.attempt), *row)
    _indented(out, table)
    if len(history) > _HISTORY:
        _indented(out, Text(f"and {len(history) - _HISTORY} more: entrepot decisions JOB", style="dim"))


def _footer(view: WhyView, out: Console) -> None:
    out.print()
    if view.decision is not None:
        _decision_line(view.decision, out)
    if view.policy_changed:
        out.print(Text(f"the policy has changed since: {view.policy_digest} is in force now", style="yellow"))
    for age in view.data_age:
        if age.link not in (None, Link.CONNECTED):
            out.print(Text(f"{age.cluster}: {age.text}", style="yellow"))
    if view.from_records:
        out.print(Text(_RECORDS, style="yellow"))
    elif view.workload is None:
        out.print(Text("the Workload is no longer on the hub; this is what was recorded of it", style="yellow"))


def _id_line(decision: DecisionSummary, out: Console) -> None:
    """One id, the one under which it is recorded: a wait that says the same again has another, which is not kept."""
    when = clock(decision.decided_at)
    if decision.repeats is None:
        text = f"decision {decision.id} of {when}, attempt {decision.attempt}"
    else:
        text = f"decision {decision.repeats}, attempt {decision.attempt}; found the same again at {when}"
    out.print(Text(text, style="dim"))


def _decision_line(decision: DecisionView, out: Console) -> None:
    _id_line(decision, out)
    out.print(Text(f"policy {decision.policy_digest}, run time {decision.estimate.text}", style="dim"))
