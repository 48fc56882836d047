"""`queue`, `clusters` and `decisions` as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dispatcher.cli.printing import clock, grid
from dispatcher.core.idle import Stage
from dispatcher.core.snapshot import Link
from dispatcher.core.units import counted
from dispatcher.web.models import (
    ClusterList,
    ClusterView,
    DecisionList,
    Job,
    StateCode,
    WorkloadList,
    WorkloadSummary,
)
from dispatcher.web.status import age_s, span

_WAITING = (
    StateCode.WAITING,
    StateCode.HELD,
    StateCode.NO_QUOTA,
    StateCode.OTHER_CHECKS,
    StateCode.NOMINATED,
    StateCode.EVICTING,
    StateCode.FOLLOWS_ANOTHER,
    StateCode.INACTIVE,
    StateCode.NOT_OURS,
    StateCode.DELETING,
)
_REASON = 130
_REASON_NEEDS, _STATE_NEEDS = 44, 32
"""Columns for a sentence beside the others; where there are fewer, a reason stands below, and others make room."""
_RIGHT = frozenset({"#", "PRIO", "SINCE", "SHARE"})
_ENDED = (StateCode.FINISHED, StateCode.GONE)
_STYLES = {
    StateCode.RUNNING: "green",
    StateCode.HELD: "red",
    StateCode.EVICTED_ON_WORKER: "red",
    StateCode.MISSING_ON_WORKER: "red",
    StateCode.UNSEEN: "red",
    StateCode.DISPATCH_FAILED: "red",
    StateCode.FINISHED: "dim",
}


def queue_page(view: WorkloadList, out: Console, wide: bool) -> None:
    if (doubt := _doubt(view)) is not None:
        out.print(Text(doubt, style="yellow"))
    waiting = [w for w in view.items if w.state.code in _WAITING]
    placed = [w for w in view.items if w.state.code not in _WAITING and w.state.code not in _ENDED]
    ended = [w for w in view.items if w.state.code in _ENDED]
    _waiting(waiting, view, out, wide)
    _placed(placed, out, wide)
    if wide and ended:
        _placed(ended, out, wide, title="Finished")
    if not waiting and not placed:
        out.print("nothing waits and nothing runs")
    if ended and not wide:
        out.print(Text(f"{len(ended)} finished (-o wide lists them)", style="dim"))
    if view.total > len(view.items):
        out.print(Text(f"{len(view.items)} of {view.total} shown: --limit", style="dim"))


def _doubt(view: WorkloadList) -> str | None:
    """Why the list may not be what the hub holds now."""
    age = None if view.hub_age_s is None else span(view.hub_age_s)
    if not view.hub_synced:
        seen = "" if age is None else f"; last heard of {age} ago"
        return f"the hub has not been read completely yet: this list may be short{seen}"
    if view.hub_link is not Link.CONNECTED:
        return f"the hub has been silent for {age}: this is what it held then, and nothing is decided until it is back"
    return None


def _waiting(items: Sequence[WorkloadSummary], view: WorkloadList, out: Console, wide: bool) -> None:
    if not items:
        return
    out.print(Text(f"Waiting ({len(items)})", style="bold"))
    extra = ("QUEUE", "WORKLOAD", "TURN") if wide else ()
    head = ("#", "JOB", "CLASS", "PRIO", "SINCE", "SHARE", "START", *extra)
    table, bare = grid(*head, "WHY", right=_RIGHT, flexible="WHY"), grid(*head, right=_RIGHT)
    for item in items:
        more = (item.local_queue, item.name, item.turn.text if item.turn is not None else "-") if wide else ()
        cells = (*_place_in_line(item), item.workload_class or "-", *_times(item, view), *more)
        table.add_row(*cells, _why(item, wide))
        bare.add_row(*cells)
    if _room_beside(bare, out, _REASON_NEEDS):
        out.print(table)
    else:
        _waiting_down(items, view, out, wide)
    unknown = next((item.expected_unknown for item in items if item.expected_unknown is not None), None)
    if unknown is not None:
        out.print(Text(f"START ?: {unknown}", style="dim"))


def _waiting_down(items: Sequence[WorkloadSummary], view: WorkloadList, out: Console, wide: bool) -> None:
    """For a narrow screen: who and when in a line, the rest below it. Beside it a word a line would be left for it."""
    head = ("#", "JOB", "PRIO", "SINCE", "SHARE", "START")
    rows = [(*_place_in_line(item), *_times(item, view)) for item in items]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = zip(head, cells, widths, strict=True)
        return "  ".join(f"{cell:>{w}}" if name in _RIGHT else f"{cell:<{w}}" for name, cell, w in aligned).rstrip()

    out.print(Text(line(head), style="bold"))
    for item, cells in zip(items, rows, strict=True):
        out.print(Text(line(cells)))
        for text in (*(_more(item) if wide else ()), _why(item, wide)):
            out.print(Padding(text, (0, 0, 0, widths[0] + 2), expand=False))


def _more(item: WorkloadSummary) -> tuple[Text, ...]:
    """What `wide` adds, as lines."""
    about = Text(f"{item.workload_class or 'no class'}, queue {item.local_queue}, Workload {item.name}")
    return (about, Text(f"its turn: {item.turn.text}")) if item.turn is not None else (about,)


def _room_beside(bare: Table, out: Console, needed: int) -> bool:
    """Whether a sentence can stand beside these columns."""
    return Measurement.get(out, out.options, bare).maximum + needed <= out.width


def _place_in_line(item: WorkloadSummary) -> tuple[str, str]:
    return str(item.order) if item.order is not None else "-", _job(item)


def _times(item: WorkloadSummary, view: WorkloadList) -> tuple[str, ...]:
    """Its priority, since when it waits, what its team had, and when it is expected to start."""
    since = span(age_s(item.waiting_since or item.created_at, view.now))
    return str(item.priority), since, _share(item), _start(item, view)


def _share(item: WorkloadSummary) -> str:
    """What its team had of the fleet lately."""
    return f"{item.turn.share_ppm // 10_000}%" if item.turn is not None else "-"


def _start(item: WorkloadSummary, view: WorkloadList) -> str:
    """When it is expected to start; "~": nothing keeps that free for it; "?": nobody works it out."""
    if item.expected is None:
        return "?" if item.expected_unknown is not None else "-"
    wait = span(max(0, int((item.expected.start - view.now).total_seconds())))
    return f"in {wait}" if item.expected.reserved else f"~ {wait}"


def _why(item: WorkloadSummary, wide: bool) -> Text:
    return Text(_why_text(item, wide), style=_STYLES.get(item.state.code, ""))


def _why_text(item: WorkloadSummary, wide: bool) -> str:
    """The start of the sentence: a list is for the eye, `why` has the whole. What its owner must correct is whole."""
    if item.idle is not None and item.idle.stage is Stage.ENDED:
        return item.idle.text  # whole: it says how to start it again
    text = item.state.text if item.state.code is StateCode.NOMINATED else item.reason
    if wide or item.problems:
        return text
    return text if len(text) <= _REASON else f"{text[: _REASON - 3]}..."


def _placed(items: Sequence[WorkloadSummary], out: Console, wide: bool, title: str = "Placed") -> None:
    if not items:
        return
    out.print()
    out.print(Text(f"{title} ({len(items)})", style="bold"))
    usual, short = ("JOB", "CLASS", "CLUSTER"), ("JOB",)  # the state names its cluster
    choices = ((*usual, "QUEUE", "WORKLOAD", "PODS"), ("JOB", "WORKLOAD"), short) if wide else (usual, short)
    rows = [_placed_cells(item) for item in items]
    for head in choices:
        table, bare = grid(*head, "STATE", flexible="STATE"), grid(*head)
        for item, cells in zip(items, rows, strict=True):
            shown = [cells[name] for name in head]
            table.add_row(*shown, _placed_state(item, wide))
            bare.add_row(*shown)
        if head == short or _room_beside(bare, out, _STATE_NEEDS):
            out.print(table)
            return


def _placed_cells(item: WorkloadSummary) -> dict[str, str]:
    pods = item.state.evidence[0].bound_pods if item.state.evidence else None
    return {
        "JOB": _job(item),
        "CLASS": item.workload_class or "-",
        "CLUSTER": item.state.cluster or "-",
        "QUEUE": item.local_queue,
        "WORKLOAD": item.name,
        "PODS": "-" if pods is None else str(pods),
    }


def _placed_state(item: WorkloadSummary, wide: bool) -> Text:
    """What it does, and what is about to be done with it because nobody uses it."""
    if item.idle is None or (item.idle.stage in (Stage.USED, Stage.UNKNOWN) and not wide):
        return Text(item.state.text, style=_STYLES.get(item.state.code, ""))
    return Text(f"{item.state.text}; {item.idle.text}", style="yellow")


def _job(item: WorkloadSummary) -> str:
    return _job_name(item.namespace, item.name, item.job)


def _job_name(namespace: str, name: str, job: Job | None) -> str:
    return f"{namespace}/{job.name}" if job is not None else f"{namespace}/{name}"


def clusters_page(view: ClusterList, out: Console, wide: bool) -> None:
    """`wide` adds a column, and below the table whatever has as many words as a cluster has queues: beside the others
    it would leave no room for them."""
    place, yields = ((), ("YIELDING",)) if wide else (("REGION",), ())
    numbers = ("NODES", "GPUS FREE", *yields, "RUNNING", "LOCAL", "HELD")
    table = grid("CLUSTER", *place, *numbers, "SEEN", right=frozenset(numbers), flexible="SEEN")
    for item in view.items:
        style = {Link.CONNECTED: "green", Link.STALE: "yellow", Link.BLIND: "red"}[item.link]
        where = () if wide else (item.region or "-",)
        table.add_row(item.name, *where, *_numbers(item, wide), Text(_seen(item), style=style))
    out.print(table)
    if not wide:
        return
    for item in view.items:
        at = f"provider {item.provider or '-'}, region {item.region or '-'}"
        out.print(Text(f"{item.name}: {at}; queues {_queues(item)}", style="dim"))
    for item in view.items:
        for room in item.rooms:
            if room.gap is not None:
                out.print(Text(f"{item.name}: {room.gap}", style="yellow"))
        for ghost in item.ghosts:
            out.print(Text(f"{item.name}: ghost: {ghost.text}", style="yellow"))


def _numbers(item: ClusterView, wide: bool) -> tuple[str, ...]:
    nodes = item.nodes
    yielding = (str(nodes.gpus_yielding) if nodes is not None else "?",) if wide else ()
    held = f"{item.held_gpus}" if item.holds else "0"
    return (
        f"{nodes.usable}/{nodes.nodes}" if nodes is not None else "?",
        f"{nodes.gpus_free}/{nodes.gpus}" if nodes is not None else "?",
        *yielding,
        str(item.running) if item.running is not None else "?",
        str(item.local) if item.local is not None else "?",
        held,
    )


def _seen(item: ClusterView) -> str:
    """How well we see it, and everything that keeps it from being nominated."""
    parts = [item.text]
    if not item.in_blueprint:
        parts.append("not in the blueprint")
    if item.multikueue_active is None:
        parts.append("not on the hub (no MultiKueueCluster)")
    elif not item.multikueue_active:
        parts.append(f"MultiKueue inactive: {item.multikueue_reason or 'no reason given'}")
    stopped = [q.name for q in item.queues if not q.active or q.stop_policy.value != "None"]
    if stopped:
        parts.append(f"stopped queues: {', '.join(stopped)}")
    if item.ghosts:
        parts.append(f"{counted(len(item.ghosts), 'ghost')} (-o wide)")
    return "; ".join(parts)


def _queues(item: ClusterView) -> str:
    return ", ".join(f"{q.name} ({q.pending} pending)" for q in item.queues) or "-"


def decisions_page(view: DecisionList, out: Console, wide: bool) -> None:
    if not view.items:
        out.print("no decisions recorded")
        return
    extra = ("TRY", "WORKLOAD") if wide else ()
    head = ("DECIDED", "JOB", *extra, "OUTCOME", "CLUSTER", "COST", "DECISION")
    table = grid(*head, right=frozenset({"COST", "TRY"}), flexible="JOB")  # not the id: people copy it
    for item in view.items:
        cost = item.total.text if item.total is not None else "-"
        more = (str(item.attempt), item.name) if wide else ()
        job = _job_name(item.namespace, item.name, item.job)
        row = (item.outcome.value, item.chosen or "-", cost, item.id)
        table.add_row(clock(item.decided_at), job, *more, *row, style="yellow" if item.chosen is None else "")
    out.print(table)
