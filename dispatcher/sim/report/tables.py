"""A comparison as tables and as the text of a whole report."""

from __future__ import annotations

from dispatcher.core.prices import div_half_up
from dispatcher.core.units import money
from dispatcher.sim.report.sheet import Column, Sheet, sheet_text
from dispatcher.sim.report.summary import ContenderSummary, GroupSummary, Ratio, Spread, summarise
from dispatcher.sim.results import Comparison

_SPANS = ((172_800, "d", 86_400), (7_200, "h", 3_600), (120, "m", 60))
_WHOLE_USD_FROM = 1_000 * 10**6
_NOTHING = "-"


def report_sheets(comparison: Comparison) -> tuple[Sheet, ...]:
    """The contenders in whole; times by group of jobs; money and use by group of jobs.

    Raises:
        ValueError: nothing was simulated.
    """
    summaries = summarise(comparison)
    return _totals(summaries), _times(summaries), _money_and_use(summaries)


def report_text(comparison: Comparison) -> str:
    """The whole report as plain text: what was simulated, from which sources, by which recipe, and the tables.

    Raises:
        ValueError: nothing was simulated.
    """
    return "\n".join((report_head(comparison), *(sheet_text(sheet) for sheet in report_sheets(comparison))))


def report_head(comparison: Comparison) -> str:
    """What was simulated: scenario, load, seeds, sources and recipe, a line each."""
    seeds = dict.fromkeys(result.seed for result in comparison.results)
    pairs = (
        ("scenario", comparison.scenario),
        ("seeds", ", ".join(map(str, seeds))),
        *(("source", source) for source in comparison.sources),
        *comparison.recipe,
    )
    return "".join(f"{key}: {value}\n" for key, value in pairs)


def _totals(summaries: tuple[ContenderSummary, ...]) -> Sheet:
    summed = (
        *_columns("wait", "mean wait", "wait x"),
        *_columns("completion", "mean completion", "completion x"),
        *_columns("cost", "cost", "cost x"),
        *_columns("egress", "egress", "egress x"),
    )
    counted = _columns("counts", "GPUs used", "copies", "preempted", "needless", "unfinished")
    rows = tuple(((_name(summary), *_total_cells(summary)),) for summary in summaries)
    title = f"Contenders, by seed; x: by {summaries[0].contender}, over all seeds (least to most)"
    return Sheet(title, (Column("contender", left=True), *summed, *counted), rows)


def _columns(quantity: str, *titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, quantity=quantity) for title in titles)


def _total_cells(summary: ContenderSummary) -> tuple[str, ...]:
    jobs = summary.all_jobs
    return (
        span(jobs.wait_s.mean),
        _ratio(jobs.wait_ratio),
        span(jobs.completion_s.mean),
        _ratio(jobs.completion_ratio),
        usd(summary.cost_usd_micro),
        _ratio(jobs.cost_ratio),
        usd(summary.egress_usd_micro),
        _ratio(jobs.egress_ratio),
        _percent(jobs.used.mean) if jobs.used else _NOTHING,
        str(jobs.counts.copies),
        str(jobs.counts.preemptions),
        str(jobs.counts.needless_preemptions),
        str(jobs.counts.unfinished),
    )


def _times(summaries: tuple[ContenderSummary, ...]) -> Sheet:
    def cells(group: GroupSummary) -> tuple[str, ...]:
        wait, completion = _spans(group.wait_s), _spans(group.completion_s)
        return (str(group.jobs), *wait, _short(group.wait_ratio), *completion, _short(group.completion_ratio))

    columns = (
        *_columns("wait", "jobs", "wait p50", "p95", "p99", "mean", "wait x"),
        *_columns("completion", "completion p50", "p95", "p99", "mean", "completion x"),
    )
    return _by_group("Time by class", columns, summaries, {s.contender: tuple(map(cells, s.groups)) for s in summaries})


def _money_and_use(summaries: tuple[ContenderSummary, ...]) -> Sheet:
    def cells(group: GroupSummary) -> tuple[str, ...]:
        used = group.used
        shares = tuple(map(_percent, (used.p50, used.p95, used.p99))) if used else (_NOTHING,) * 3
        return (*_usds(group.cost), _short(group.cost_ratio), *_usds(group.egress), _short(group.egress_ratio), *shares)

    columns = (
        *_columns("cost", "cost p50", "p95", "p99", "cost x"),
        *_columns("egress", "egress p50", "p95", "p99", "egress x"),
        *_columns("used", "GPUs used p50", "p95", "p99"),
    )
    title = "Cost and egress of a job, and share of the fleet's GPUs over time, by class"
    return _by_group(title, columns, summaries, {s.contender: tuple(map(cells, s.groups)) for s in summaries})


def _by_group(
    title: str,
    columns: tuple[Column, ...],
    summaries: tuple[ContenderSummary, ...],
    cells: dict[str, tuple[tuple[str, ...], ...]],
) -> Sheet:
    groups = tuple(
        tuple(
            (_name(summary), group.name, *row)
            for group, row in zip(summary.groups, cells[summary.contender], strict=True)
        )
        for summary in summaries
    )
    return Sheet(title, (Column("contender", left=True), Column("jobs of", left=True), *columns), groups)


def _name(summary: ContenderSummary) -> str:
    return f"{summary.contender} (bound)" if summary.is_bound else summary.contender


def _spans(spread: Spread) -> tuple[str, ...]:
    return tuple(map(span, (spread.p50, spread.p95, spread.p99, spread.mean)))


def _usds(spread: Spread) -> tuple[str, ...]:
    return tuple(map(usd, (spread.p50, spread.p95, spread.p99)))


def span(seconds: int) -> str:
    """A time span in the unit that leaves it readable: 95s, 12.5m, 3.2h, 4.1d."""
    for least, unit, size in _SPANS:
        if seconds >= least:
            tenths = div_half_up(10 * seconds, size)
            return f"{tenths // 10}.{tenths % 10}{unit}"
    return f"{seconds}s"


def usd(usd_micro: int) -> str:
    """Cents, and from a thousand on whole dollars."""
    return f"${div_half_up(usd_micro, 10**6):,}" if usd_micro >= _WHOLE_USD_FROM else money(usd_micro)


def _percent(permille: int) -> str:
    return f"{permille // 10}.{permille % 10}%"


def _short(ratio: Ratio | None) -> str:
    return _NOTHING if ratio is None else f"{_hundredths(ratio.permille)}x"


def _ratio(ratio: Ratio | None) -> str:
    """With the range over the seeds, where there is one."""
    if ratio is None or ratio.least == ratio.most:
        return _short(ratio)
    return f"{_short(ratio)} ({_hundredths(ratio.least)}-{_hundredths(ratio.most)})"


def _hundredths(permille: int) -> str:
    hundredths = div_half_up(permille, 10)
    return f"{hundredths // 100}.{hundredths % 100:02d}"
