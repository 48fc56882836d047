"""`simulate`: contenders on the same jobs in the same world, and what-if on the live queue."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dispatcher.cli.errors import CliError, ExitCode, unwritable
from dispatcher.cli.files import unfinished
from dispatcher.cli.options import Output, OutputOption
from dispatcher.cli.printing import console, note

if TYPE_CHECKING:
    from dispatcher.sim.contenders_all import Entry
    from dispatcher.sim.engine_compare import Mark
    from dispatcher.sim.jobs import Scenario
    from dispatcher.sim.results import Comparison

T = TypeVar("T")
DEFAULT_COMPARE = "all-at-once,entrepot"


class Form(StrEnum):
    """What is written into --out."""

    CSV = "csv"
    SVG = "svg"
    TEXT = "text"


def simulate(  # noqa: PLR0913 - one parameter an option: that is how typer declares a command line
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO|TRACE", help="a named scenario, or the path of a trace (it has a '/' or a '.')"
        ),
    ] = None,
    compare: Annotated[
        str, typer.Option("--compare", help="contenders; the others are compared with the first", metavar="NAME,...")
    ] = DEFAULT_COMPARE,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="how many seeds, from 1 on")] = 1,
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, max=1024, help="so many runs side by side; else one", metavar="N")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option("--load", min=0.01, max=100, help="work by capacity, such as 1.2; else the scenario's own"),
    ] = None,
    days: Annotated[int | None, typer.Option("--days", min=1, help="of a trace: only its densest days")] = None,
    fleet: Annotated[
        str | None, typer.Option("--fleet", help="the fleet: a blueprint's folder; else the scenario's", metavar="DIR")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="write files into this folder", metavar="DIR")] = None,
    form: Annotated[
        list[Form] | None, typer.Option("--format", help="what to write there; may be repeated; else all")
    ] = None,
    from_snapshot: Annotated[
        Path | None,
        typer.Option("--from-snapshot", help="what-if: the queue in a file of `entrepot snapshot`", metavar="FILE"),
    ] = None,
    blueprint: Annotated[
        Path | None, typer.Option("--blueprint", help="what-if: the changed blueprint's folder", metavar="DIR")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let dispatchers compete on the same jobs, or decide the live queue again under a changed blueprint.

    The same scenario, seeds and contenders give the same bytes. Without SCENARIO: lists scenarios and contenders.

    Exit codes: 0 done, 1 the run failed, 2 no such scenario or contender, 5 the blueprint does not load.
    """
    of_runs = {"--load": load, "--days": days, "--fleet": fleet, "--cores": cores, "--out": out, "--format": form}
    given = [option for option, value in of_runs.items() if value is not None]
    if from_snapshot is not None or blueprint is not None:
        if from_snapshot is None or blueprint is None or scenario is not None or given:
            without = ", ".join(("scenario", *given))
            what = f"what-if takes a snapshot and a blueprint, and no {without}"
            raise _usage(what, "entrepot simulate --from-snapshot FILE --blueprint DIR")
        from dispatcher.cli.simulate_whatif import what_if

        what_if(from_snapshot, blueprint, output)
        return
    if output is not Output.TABLE:
        raise _usage(f"-o {output.value} is for --from-snapshot alone", "entrepot simulate SCENARIO --out DIR")
    _refuse_unused(scenario, given)
    if scenario is None:
        _list()
        return
    _compare(scenario, _Wish(compare, seeds, load, days, fleet), cores or 1, (out, tuple(form or Form)))


def _refuse_unused(scenario: str | None, given: Sequence[str]) -> None:
    """An option that would change nothing is a mistake: whoever gave it believes that it did."""
    if scenario is None and given:
        raise _usage(f"{', '.join(given)} without a scenario or trace", "entrepot simulate SCENARIO|TRACE")
    if "--format" in given and "--out" not in given:
        raise _usage("--format without a folder to write into", "entrepot simulate SCENARIO --out DIR --format FORMAT")
    if "--days" in given and scenario is not None and not _is_trace(scenario):
        raise _usage("--days is for traces alone", "give the path of a trace, or leave it out")


def _usage(what: str, fix: str) -> CliError:
    return CliError(what, where="simulate", fix=fix, code=ExitCode.USAGE)


def _is_trace(text: str) -> bool:
    return "/" in text or ("." in text and Path(text).exists())


class _Wish:
    """What is to be simulated, beside the scenario's name."""

    def __init__(self, compare: str, seeds: int, load: float | None, days: int | None, fleet: str | None) -> None:
        self.names = [name.strip() for name in compare.split(",") if name.strip()]
        self.seeds = range(1, seeds + 1)
        self.load_permille = round(load * 1000) if load is not None else None
        self.days = days
        self.fleet = fleet


def _compare(scenario: str, wish: _Wish, cores: int, files: tuple[Path | None, Sequence[Form]]) -> None:
    """`files`: the folder to write into, if any, and in which forms."""
    # Imported here: `why` must answer at once.
    from dispatcher.core.errors import Fatal
    from dispatcher.logs import configure
    from dispatcher.runtime import calm_collector
    from dispatcher.sim.engine_compare import compare, entries

    out, forms = files
    configure("critical")  # what loops log of a simulated day is no news, and no part of the report
    contenders = _told(lambda: entries(wish.names), "--compare", ExitCode.USAGE)
    if wish.fleet is not None:
        _told(partial(_known_fleet, wish.fleet), "--fleet", ExitCode.INVALID_BLUEPRINT)
    scenarios = _told(lambda: [_scenario(scenario, wish, seed) for seed in wish.seeds], "SCENARIO", ExitCode.USAGE)
    if out is not None:
        _make(out)
    calm_collector()
    with _progress(scenarios, contenders) as tell:
        try:
            found = compare(scenarios, contenders, tell, cores)
        except Fatal as error:
            raise CliError(str(error), where=scenario, fix=error.fix, code=ExitCode.INVALID_BLUEPRINT) from None
        except BrokenExecutor:
            raise CliError(
                "a run was ended from outside", where=scenario, fix="fewer --cores need less memory"
            ) from None
    _print(found)
    if out is not None:
        _write(found, out, forms)


def _told(make: Callable[[], T], where: str, code: ExitCode) -> T:
    from dispatcher.core.errors import Fatal

    try:
        return make()
    except Fatal as error:
        raise CliError(str(error), where=where, fix=error.fix, code=code) from None


def _scenario(text: str, wish: _Wish, seed: int) -> Scenario:
    from dispatcher.sim.generator import TracePlan, from_plan
    from dispatcher.sim.scenarios import blueprint_folder, load_fleet, plan_named, trace_scenario
    from dispatcher.sim.world import start_of

    if _is_trace(text):
        chosen = wish.fleet or "four-sites"
        now = start_of(blueprint_folder(chosen))
        return trace_scenario(Path(text), seed, now, TracePlan(wish.load_permille, wish.days), chosen)
    plan = plan_named(text)
    if wish.load_permille is not None:
        plan = replace(plan, load_permille=wish.load_permille)
    chosen = wish.fleet or plan.blueprint
    return from_plan(plan, load_fleet(chosen, start_of(blueprint_folder(chosen))), seed)


def _known_fleet(fleet: str) -> None:
    from dispatcher.sim.scenarios import blueprint_folder, load_fleet
    from dispatcher.sim.world import start_of

    load_fleet(fleet, start_of(blueprint_folder(fleet)))


def _list() -> None:
    from dispatcher.cli.printing import grid
    from dispatcher.sim.contenders_all import CONTENDERS
    from dispatcher.sim.scenarios import PLANS

    table = grid("SCENARIO", "ABOUT", flexible="ABOUT")
    for plan in PLANS:
        table.add_row(plan.name, plan.about)
    console().print(table)
    table = grid("CONTENDER", "ABOUT", flexible="ABOUT")
    for entry in CONTENDERS.values():
        table.add_row(entry.name, entry.about)
    console().print(table)


def _print(found: Comparison) -> None:
    """The report: rich tables on a terminal, plain text in a pipe."""
    from dispatcher.sim.report import report_sheets, report_text
    from dispatcher.sim.report.sheet import sheet_table, within
    from dispatcher.sim.report.tables import report_head

    if not sys.stdout.isatty():
        sys.stdout.write(report_text(found))
        return
    screen = console()
    screen.print(report_head(found), end="")
    for sheet in report_sheets(found):
        for part in within(sheet, screen.width):
            screen.print()
            screen.print(sheet_table(part))


def _make(out: Path) -> None:
    """Make the folder, and see that files can be made in it: a run may take an hour."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with unfinished(out):
            pass
    except OSError as error:
        raise unwritable(error, str(out)) from None


def _write(found: Comparison, out: Path, forms: Sequence[Form]) -> None:
    from dispatcher.sim.chart import write_chart
    from dispatcher.sim.export import write_jobs_csv, write_summary_csv
    from dispatcher.sim.report import report_text

    try:
        with unfinished(out) as made:
            if Form.CSV in forms:
                write_jobs_csv(found, made / "jobs.csv")
                write_summary_csv(found, made / "summary.csv")
            if Form.SVG in forms:
                write_chart(found, made / "chart.svg")
            if Form.TEXT in forms:
                (made / "report.txt").write_text(report_text(found), encoding="utf-8")
    except OSError as error:
        raise unwritable(error, str(out)) from None
    note(f"{out}: {', '.join(sorted(path.name for path in out.iterdir() if path.is_file()))}")


@contextlib.contextmanager
def _progress(scenarios: Sequence[Scenario], contenders: Sequence[Entry]) -> Iterator[Callable[[Mark], None]]:
    """A bar on a terminal; in a pipe one line on standard error for each run that has ended."""
    if sys.stderr.isatty():
        with _bar(scenarios, contenders) as tell:
            yield tell
        return

    def line(mark: Mark) -> None:
        if mark.over:
            text = f"seed {mark.seed}, {mark.contender}: {mark.ended} of {mark.jobs} jobs, {mark.events} events"
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    yield line


@contextlib.contextmanager
def _bar(scenarios: Sequence[Scenario], contenders: Sequence[Entry]) -> Iterator[Callable[[Mark], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total = sum(len(scenario.jobs) for scenario in scenarios) * len(contenders)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=total)
        before = 0

        def tell(mark: Mark) -> None:
            nonlocal before
            bar.update(task, description=f"{mark.contender}, seed {mark.seed}", completed=before + mark.ended)
            if mark.over:
                before += mark.jobs

        yield tell
