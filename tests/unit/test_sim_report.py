"""What is reported of results: numbers of cases that can be counted by hand, then tables, CSV and chart to the byte."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from rich.console import Console

from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.chart import chart_svg, write_chart
from dispatcher.sim.export import JOB_COLUMNS, jobs_csv, summary_csv, write_jobs_csv, write_summary_csv
from dispatcher.sim.report import Ratio, Spread, report_sheets, report_text, sheet_text, summarise
from dispatcher.sim.report.sheet import Column, Sheet, sheet_table, within
from dispatcher.sim.report.tables import report_head, span, usd
from dispatcher.sim.report.usage import usage
from dispatcher.sim.results import CapacityStep, Comparison, ContenderResult, Run
from dispatcher.sim.scenarios import named_scenario
from tests.builders import START
from tests.sim_results import comparison, outcome, result, served_in_order

EVALUATION = WorkloadClass.EVALUATION


def two_contenders() -> Comparison:
    ours = (
        outcome("a", start_s=0, finish_s=100, cost=1_000_000, egress=100_000),
        outcome("b", start_s=300, finish_s=500, gpus=16, workload_class=EVALUATION, cost=3_000_000),
    )
    theirs = (
        outcome("a", start_s=200, finish_s=300, cost=2_000_000, egress=1_000_000),
        outcome("b", start_s=400, finish_s=600, gpus=16, workload_class=EVALUATION, cost=4_000_000),
    )
    return comparison(result(*theirs, gpus=20), result(*ours, contender="entrepot", gpus=20))


# --- numbers ---


def test_all_jobs_come_first_then_the_classes_then_the_large_gangs() -> None:
    first, second = summarise(two_contenders())
    assert [group.name for group in first.groups] == ["all", "training", "evaluation", "over 8 GPUs"]
    assert (first.contender, second.contender) == ("all-at-once", "entrepot")


def test_ratios_are_of_the_same_jobs_under_the_first_contender() -> None:
    first, second = summarise(two_contenders())
    ours = second.all_jobs
    assert (ours.wait_ratio, ours.egress_ratio) == (Ratio(500, 500, 500), Ratio(100, 100, 100))
    assert second.groups[1].wait_ratio == Ratio(0, 0, 0)
    assert second.groups[2].egress_ratio is None
    assert first.all_jobs.cost_ratio == Ratio(1_000, 1_000, 1_000)


def test_over_several_seeds_sums_are_of_a_seed_and_the_ratio_tells_its_range() -> None:
    results = [
        result(outcome(start_s=wait, finish_s=wait + 50, cost=10 * wait), contender=name, seed=seed)
        for name, seed, wait in (("x", 1, 100), ("x", 2, 300), ("y", 1, 50), ("y", 2, 270))
    ]
    first, second = summarise(comparison(*results))
    assert (first.cost_usd_micro, first.seeds, first.all_jobs.jobs) == (2_000, (1, 2), 1)
    assert second.all_jobs.wait_ratio == Ratio(800, 500, 900)


def test_a_job_that_never_ran_has_waited_until_the_end() -> None:
    never = outcome("a", submit_s=4_000, start_s=None, finish_s=None)
    unended = outcome("b", submit_s=1_000, start_s=1_500, finish_s=None)
    summary = summarise(comparison(result(never, unended)))[0]
    assert summary.all_jobs.counts.unfinished == 2
    assert summary.all_jobs.wait_s == Spread(500, 6_000, 6_000, 3_250)
    assert summary.all_jobs.completion_s == Spread(6_000, 9_000, 9_000, 7_500)
    assert (never.wait_s, unended.completion_s, unended.wait_s) == (None, None, 500)


def test_a_job_stopped_and_run_again_waits_until_its_first_run_and_holds_gpus_in_both() -> None:
    again = replace(outcome(gpus=2), runs=(Run("a", "h100", 10, 30), Run("b", "h100", 50, 100)), finish_s=100)
    assert (again.wait_s, again.completion_s, again.gpu_seconds) == (10, 100, 140)


def test_use_is_weighed_by_time_until_the_last_submission() -> None:
    first = outcome("a", start_s=0, finish_s=50, gpus=4)
    last = outcome("b", submit_s=100, start_s=100, finish_s=900, gpus=10)
    run = result(first, last, gpus=10)
    assert usage(run.outcomes, run) == {400: 50, 0: 50}
    assert usage((last,), run) == {0: 100}


def test_use_follows_the_capacity_and_leaves_out_time_without_gpus() -> None:
    steps = (CapacityStep(20, "a", 4), CapacityStep(60, "b", 4), CapacityStep(80, "a", 2))
    held = outcome("a", start_s=20, finish_s=100, gpus=2)
    run = ContenderResult("x", 1, (held, outcome("z", submit_s=100, start_s=None, finish_s=None)), steps, 100)
    assert usage((held,), run) == {500: 40, 250: 20, 333: 20}


def test_where_all_jobs_come_at_once_nothing_is_said_of_use() -> None:
    assert summarise(comparison(result(outcome())))[0].all_jobs.used is None
    assert "  -  " in report_text(comparison(result(outcome())))


@pytest.mark.parametrize("results", [(), (result(),)], ids=["no result", "no job"])
def test_a_report_of_nothing_is_refused(results: tuple[ContenderResult, ...]) -> None:
    with pytest.raises(ValueError, match="small: nothing was simulated"):
        report_text(comparison(*results))


# --- tables ---


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2.0m"),
        (7_199, "120.0m"),
        (7_200, "2.0h"),
        (172_800, "2.0d"),
        (950_400, "11.0d"),
    ],
)
def test_a_time_is_told_in_the_unit_that_leaves_it_readable(seconds: int, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0.00"), (123_456_789, "$123.46"), (999_990_000, "$999.99"), (1_234_567_890_000, "$1,234,568")],
)
def test_money_is_told_in_cents_and_large_sums_in_dollars(amount: int, text: str) -> None:
    assert usd(amount) == text


def test_the_head_tells_scenario_seeds_sources_and_recipe() -> None:
    assert report_head(two_contenders()) == ("scenario: small\nseeds: 1\nsource: a trace: CC-BY-4.0\nload: 1.2\n")


def test_the_first_table_shows_each_contender_beside_the_first() -> None:
    text = sheet_text(report_sheets(two_contenders())[0])
    assert text.splitlines()[0] == "Contenders, by seed; x: by all-at-once, over all seeds (least to most)"
    rows = [line.split() for line in text.splitlines()[3:]]
    assert rows == [
        ["all-at-once", "5.0m", "1.00x", "7.5m", "1.00x", "$6.00", "1.00x", "$1.00", "1.00x", "-", "2", "0", "0", "0"],
        ["entrepot", "2.5m", "0.50x", "5.0m", "0.67x", "$4.00", "0.67x", "$0.10", "0.10x", "-", "2", "0", "0", "0"],
    ]


def test_the_tables_by_class_have_a_group_for_each_contender() -> None:
    _, times, money = report_sheets(two_contenders())
    assert [[row[:2] for row in group] for group in times.groups] == [
        [(name, group) for group in ("all", "training", "evaluation", "over 8 GPUs")]
        for name in ("all-at-once", "entrepot")
    ]
    assert money.groups[1][0] == ("entrepot", "all", "$1.00", "$3.00", "$3.00", "0.67x", "$0.00", "$0.10", "$0.10",
                                  "0.10x", "-", "-", "-")  # fmt: skip
    assert all(len(row) == len(sheet.columns) for sheet in (times, money) for group in sheet.groups for row in group)


def test_a_bound_is_called_one() -> None:
    bound = replace(result(outcome()), contender="oracle", is_bound=True)
    assert "oracle (bound)" in report_text(comparison(result(outcome()), bound))


def test_a_range_over_seeds_is_shown_where_there_is_one() -> None:
    results = [
        result(outcome(start_s=wait, finish_s=wait + 50), contender=name, seed=seed)
        for name, seed, wait in (("x", 1, 100), ("x", 2, 300), ("y", 1, 50), ("y", 2, 270))
    ]
    assert "0.80x (0.50-0.90)" in report_text(comparison(*results))


def test_plain_text_has_neither_colour_nor_trailing_blanks() -> None:
    sheet = Sheet("T", (Column("name", left=True), Column("n")), ((("a", "1"), ("bb", "22")), (("c", "3"),)))
    assert sheet_text(sheet) == "T\n\nname   n\na      1\nbb    22\n\nc      3\n"


def test_the_same_sheet_is_a_rich_table_on_a_terminal() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=200)
    for sheet in report_sheets(two_contenders()):
        console.print(sheet_table(sheet))
    assert "0.50x" in shown.getvalue()
    assert "over 8 GPUs" in shown.getvalue()


def test_on_a_narrow_screen_a_sheet_comes_in_parts_each_with_the_names() -> None:
    columns = (Column("name", left=True), Column("one"), Column("two", quantity="q"), Column("three", quantity="q"))
    sheet = Sheet("T", columns, ((("a", "1", "2", "3"),),))
    assert [[column.title for column in part.columns] for part in within(sheet, 20)] == [
        ["name", "one"],
        ["name", "two", "three"],
    ]
    assert [len(part.columns) for part in within(sheet, 5)] == [2, 3]
    assert within(sheet, 21) == (sheet,)


def test_recipes_that_differ_by_seed_stand_side_by_side() -> None:
    scenarios = [named_scenario("small", seed, START) for seed in (1, 2)]
    merged = Comparison.of(scenarios, ())
    assert dict(merged.recipe)["arrivals"] == "diurnal"
    assert dict(merged.recipe)["jobs"].count("300 generated") == 2
    assert (merged.scenario, merged.load_permille) == ("small", 1_200)


# --- CSV and chart ---


def test_each_job_of_each_contender_is_a_row_with_its_cost_by_term() -> None:
    written = io.StringIO()
    jobs_csv(two_contenders(), written)
    head, first, *_ = written.getvalue().splitlines()
    assert head == ",".join((*JOB_COLUMNS, "cost_egress_usd_micro", "cost_run_usd_micro"))
    assert first == (
        "small,all-at-once,0,1,a,training,models,team-1,1,0,200,300,200,300,1,onprem-eu,h100,100,2000000,1000000,1000000,"
        "1,0,0,1000000,1000000"
    )


def test_what_is_not_known_of_a_job_is_an_empty_field() -> None:
    written = io.StringIO()
    jobs_csv(comparison(result(outcome(start_s=None, finish_s=None))), written)
    assert ",1,0,,,,,0,,,0,2000000," in written.getvalue()


def test_the_summary_has_a_row_for_each_contender_and_group() -> None:
    written = io.StringIO()
    summary_csv(two_contenders(), written)
    rows = written.getvalue().splitlines()
    assert len(rows) == 1 + 2 * 4
    assert rows[5] == (
        "small,entrepot,0,1,all,2,0,300,300,150,100,500,500,300,1000000,3000000,3000000,2000000,0,100000,100000,50000,"
        ",,,,500,667,667,100,0,2,0,0"
    )
    assert rows[0].split(",")[-4:] == ["unfinished", "copies", "preemptions", "needless_preemptions"]


def test_the_chart_is_wellformed_and_names_everybody_and_what_it_cost() -> None:
    svg = chart_svg(two_contenders())
    words = [element.text for element in ET.fromstring(svg).iter() if element.tag.endswith("text")]
    assert "small, load 1.2, seeds 1" in words
    assert words.count("entrepot") == 2
    assert "$4.00, egress $0.10" in words


def test_lines_of_the_chart_rise_to_the_share_that_started_and_stay_in_the_panel() -> None:
    jobs = [outcome(str(n), start_s=n * n, finish_s=n * n + 1) for n in range(60)]
    never = outcome("never", start_s=None, finish_s=None)
    svg = chart_svg(comparison(result(*jobs, *[replace(never, job=f"n{n}") for n in range(20)])))
    line = next(element for element in ET.fromstring(svg).iter() if element.tag.endswith("polyline"))
    points = [tuple(map(int, point.split(","))) for point in line.attrib["points"].split()]
    heights = [y for _, y in points]
    assert heights == sorted(heights, reverse=True)
    assert heights[-1] == 70 + 300 - 300 * 60 // 80
    assert all(70 <= x <= 840 and 70 <= y <= 370 for x, y in points)


def test_names_cannot_break_the_picture() -> None:
    svg = chart_svg(comparison(result(outcome(), contender="<b>&'\"")))
    assert ET.fromstring(svg) is not None


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for at in (1, 2):
        scenario = named_scenario("small", 1, START)
        results = [served_in_order(scenario, name, gpus, 2_000_000) for name, gpus in (("x", 192), ("y", 96))]
        compared = Comparison.of([scenario], results)
        paths = [tmp_path / f"{at}.{kind}" for kind in ("jobs.csv", "summary.csv", "svg", "txt")]
        write_jobs_csv(compared, paths[0])
        write_summary_csv(compared, paths[1])
        write_chart(compared, paths[2])
        head = report_head(compared).splitlines()
        paths[3].write_text(report_text(compared).replace("\n".join(head), ""))
        digests.append([sha256(path.read_bytes()).hexdigest()[:12] for path in paths])
    assert digests[0] == digests[1] == GOLDEN_REPORT


GOLDEN_REPORT: list[str] = ["fc88de16fb59", "0c2ae6bfba36", "762e40f80ff2", "c944cc212353"]
"""Of the scenario `small`, seed 1, served in order: jobs, summary, chart, tables. See GOLDEN_SMALL of the generator."""
