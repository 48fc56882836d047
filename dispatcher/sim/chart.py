"""A comparison as one picture: how soon jobs start under each contender, and what a seed costs, egress set apart.

Written by ourselves: two panels of lines and boxes need no drawing library, and what one writes differs from version to
version (docs/adr/0019-simulation-outputs.md). All positions are whole pixels from integer arithmetic, so the same
results give the same bytes on every machine.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from dispatcher.core.prices import div_half_up
from dispatcher.sim.report.summary import ContenderSummary, summarise
from dispatcher.sim.report.tables import span, usd
from dispatcher.sim.results import Comparison
from dispatcher.sim.svg import Canvas

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Told apart by people who see colours differently, too; a bound is dashed."""
EGRESS_COLOUR = "#222222"

_WIDTH, _TOP, _LEFT, _RIGHT = 860, 70, 70, 20
_PANEL_HEIGHT, _BAR, _GAP = 300, 22, 10
_PLOT = _WIDTH - _LEFT - _RIGHT
_TICKS_S = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)
_STEPS = 200
"""Points of a line: more than the eye sees."""


def write_chart(comparison: Comparison, path: Path) -> None:
    """Write the chart as SVG.

    Raises:
        OSError: the file cannot be written.
        ValueError: nothing was simulated.
    """
    path.write_text(chart_svg(comparison), encoding="utf-8", newline="\n")


def chart_svg(comparison: Comparison) -> str:
    """The chart as the text of an SVG file.

    Raises:
        ValueError: nothing was simulated.
    """
    summaries = summarise(comparison)
    bars_at = _TOP + _PANEL_HEIGHT + 110
    canvas = Canvas(_WIDTH, bars_at + len(summaries) * (_BAR + _GAP) + 30, f"Simulation {comparison.scenario}")
    seeds = ", ".join(str(seed) for seed in summaries[0].seeds)
    canvas.text(_LEFT, 24, f"{comparison.scenario}, load {comparison.load_permille / 1000:g}, seeds {seeds}", bold=True)
    _waits(canvas, comparison, summaries)
    _costs(canvas, summaries, bars_at)
    return canvas.written()


# --- how soon jobs start ---


def _waits(canvas: Canvas, comparison: Comparison, summaries: tuple[ContenderSummary, ...]) -> None:
    bottom = _TOP + _PANEL_HEIGHT
    canvas.text(_LEFT, _TOP - 24, "Share of jobs that started within", bold=True)
    waits = {summary.contender: _waits_of(comparison, summary.contender) for summary in summaries}
    longest = max(_TICKS_S[1], *(max(found, default=0) for found, _ in waits.values()))
    for percent in range(0, 101, 25):
        y = bottom - _PANEL_HEIGHT * percent // 100
        canvas.line((_LEFT, y), (_LEFT + _PLOT, y))
        canvas.text(_LEFT - 8, y + 4, f"{percent} %", anchor="end")
    for seconds in (tick for tick in _TICKS_S if tick <= longest):
        x = _LEFT + _across(seconds, longest)
        canvas.line((x, _TOP), (x, bottom))
        canvas.text(x, bottom + 18, span(seconds), anchor="middle")
    for at, summary in enumerate(summaries):
        found, jobs = waits[summary.contender]
        colour = COLOURS[at % len(COLOURS)]
        canvas.path(_steps(found, jobs, longest), colour, dashed=summary.is_bound)
        column, row = divmod(at, 2)
        x, y = _LEFT + 190 * column, bottom + 42 + 18 * row
        canvas.line((x, y - 4), (x + 24, y - 4), colour)
        canvas.text(x + 30, y, summary.contender + (" (bound)" if summary.is_bound else ""))


def _waits_of(comparison: Comparison, contender: str) -> tuple[list[int], int]:
    """(waits of the jobs that started, in order; how many jobs there are)."""
    outcomes = [o for r in comparison.results if r.contender == contender for o in r.outcomes]
    return sorted(o.wait_s for o in outcomes if o.wait_s is not None), len(outcomes)


def _steps(found: list[int], jobs: int, longest: int) -> list[tuple[int, int]]:
    points: list[tuple[int, int]] = []
    for step in range(_STEPS + 1):
        x = _PLOT * step // _STEPS
        started = bisect_right(found, longest if step == _STEPS else _within(x, longest))
        points.append((_LEFT + x, _TOP + _PANEL_HEIGHT - _PANEL_HEIGHT * started // jobs))
    return points


_FINE = 1_000


def _doublings(seconds: int) -> int:
    """Thousandths of doublings from 1 s on, straight between powers of two: a logarithm alike on all machines."""
    whole = (seconds + 1).bit_length() - 1
    return _FINE * whole + _FINE * (seconds + 1 - (1 << whole)) // (1 << whole)


def _across(seconds: int, longest: int) -> int:
    """Where a wait lies from the left edge of the panel."""
    return _PLOT * _doublings(seconds) // _doublings(longest)


def _within(x: int, longest: int) -> int:
    """The wait that lies at a place."""
    whole, rest = divmod(x * _doublings(longest) // _PLOT, _FINE)
    return (1 << whole) + (rest << whole) // _FINE - 1


# --- what a seed costs ---


def _costs(canvas: Canvas, summaries: tuple[ContenderSummary, ...], top: int) -> None:
    canvas.text(_LEFT, top - 14, "Cost of a seed; the dark part is egress", bold=True)
    most = max(1, *(summary.cost_usd_micro for summary in summaries))
    room = _PLOT - 260
    for at, summary in enumerate(summaries):
        y = top + at * (_BAR + _GAP)
        whole = div_half_up(room * summary.cost_usd_micro, most)
        dark = div_half_up(room * summary.egress_usd_micro, most)
        words = f"{usd(summary.cost_usd_micro)}, egress {usd(summary.egress_usd_micro)}"
        canvas.text(_LEFT + 110, y + 15, summary.contender, anchor="end")
        canvas.box((_LEFT + 120, y), (whole, _BAR), COLOURS[at % len(COLOURS)], words)
        canvas.box((_LEFT + 120, y), (min(dark, whole), _BAR), EGRESS_COLOUR, words)
        canvas.text(_LEFT + 126 + whole, y + 15, words)
