"""The command line against the real API over HTTP, against records, and against everything that goes wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from dispatcher.cli.main import run
from dispatcher.core.bids import bid_of
from dispatcher.core.decision import Decision, Detail, Reason, Rejection, Resolver
from dispatcher.core.declaration import InputProblem
from dispatcher.core.energy import EndedRun
from dispatcher.core.errors import Transient
from dispatcher.core.ids import DecisionId
from dispatcher.core.order import OrderRules, turn_of
from dispatcher.store import SqlStore, open_store
from dispatcher.web.api import build_api
from tests.unit.api_world import World, admitted_on, copy_of, served, worker, workload
from tests.unit.records import NOW, USD, decision, no_nodes, priced, rejected

ILLEGAL = Rejection(
    Reason.RESIDENCY,
    Resolver.NOBODY,
    Detail(subject="radar-2026", holder="export-controlled", expected=("DE", "FR"), seen=("US",)),
)
CHOICE = decision(
    2,
    candidates=(
        priced("onprem-1", 36 * USD, 0, 5 * USD, 200_000),
        priced("cloud-eu", 31 * USD, 19 * USD, 5 * USD),
        rejected("cloud-us", ILLEGAL, no_nodes()),
    ),
)
FIRST_WAIT = decision(1, chosen=None, at=NOW - timedelta(minutes=12))
EVAL_WAIT = decision(
    3,
    key="team-b/job-eval-77",
    job="eval",
    chosen=None,
    candidates=(rejected("cloud-us", ILLEGAL), rejected("onprem-1", no_nodes())),
)


class FileStore(SqlStore):
    """Opens the file anew for each call: the server's loop runs in another thread than the test's."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def decisions_of(self, workload_key: str, limit: int = 20) -> Sequence[Decision]:
        async with opened(self._file) as store:
            return await store.decisions_of(workload_key, limit)

    async def ended_runs(self, key: str, limit: int) -> Sequence[EndedRun]:
        async with opened(self._file) as store:
            return await store.ended_runs(key, limit)

    async def recent(self, limit: int = 50, cluster: object = None, outcome: object = None) -> Sequence[Decision]:
        async with opened(self._file) as store:
            return await store.recent(limit, cluster, outcome)  # type: ignore[arg-type]

    async def decision(self, decision: object) -> Decision | None:
        async with opened(self._file) as store:
            return await store.decision(decision)  # type: ignore[arg-type]

    async def keys_named(self, name: str, limit: int = 20) -> Sequence[str]:
        async with opened(self._file) as store:
            return await store.keys_named(name, limit)

    async def ids_like(self, start: str, limit: int = 10) -> Sequence[DecisionId]:
        async with opened(self._file) as store:
            return await store.ids_like(start, limit)


class opened:
    def __init__(self, file: Path) -> None:
        self._file = file

    async def __aenter__(self) -> SqlStore:
        self._store = await open_store(self._file)
        return self._store

    async def __aexit__(self, *error: object) -> None:
        await self._store.close()


def seed(file: Path, *records: Decision) -> None:
    async def write() -> None:
        async with opened(file) as store:
            for record in records:
                await store.commit(record, None, None)

    asyncio.run(write())


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cli") / "store.db"
    seed(file, FIRST_WAIT, CHOICE, EVAL_WAIT, decision(9, key="team-z/job-old-1", job="old"))
    return file


@pytest.fixture(scope="module")
def server(records: Path) -> Iterator[str]:
    """A daemon's API: one job runs, one waits, one is held by its input; cloud-us has never been seen."""
    world = World()
    placed, waiting = admitted_on("onprem-1"), workload("team-b/job-eval-77", "eval", priority=5)
    held, twin = workload("team-b/job-broken-1", "broken"), workload("team-b/jobset-train-5", "train", kind="JobSet")
    world.show(placed, waiting, held, twin)
    world.show_worker(worker("onprem-1", copy_of(placed)))
    world.show_worker(worker("cloud-us", seen_s=None, error="connection refused"))
    problem = InputProblem("entrepot.dev/datasets", "radar-2062", "is not in the catalog", "did you mean 'radar-2026'?")
    world.state.problems[held.uid] = (problem,)
    world.state.latest.update({CHOICE.workload: CHOICE, EVAL_WAIT.workload: EVAL_WAIT})
    with served(build_api(world.state, FileStore(records), world.vitals)) as url:
        yield url


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Terminal:
    """Runs one command line in this process and gives what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Result:
        code = run(list(arguments))
        out, err = self._capsys.readouterr()
        return Result(code, out, err)


@pytest.fixture
def entrepot(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("ENTREPOT_SERVER", "ENTREPOT_STORE", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Terminal(capsys)


NOWHERE = "http://127.0.0.1:9"
ROOT = Path(__file__).parents[2]


# --- what it shows -----------------------------------------------------------------------------------------------


def test_why_shows_the_whole_reason_on_a_hundred_columns(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "team-a/train", "--server", server)
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == "team-a/train  Job, Workload job-train-1f3a"
    assert lines[1] == "running on onprem-1 for 11m, seen 3s ago"
    table = [line.split() for line in lines if line.lstrip().startswith((">", "cloud-eu ", "x"))]
    assert table[0] == [">", "onprem-1", "$41.20", "$36.00", "$0.00", "$5.00", "$0.20", "now", "4s"]
    assert table[1][:5] == ["cloud-eu", "$55.00", "$31.00", "$19.00", "$5.00"]
    assert table[2][:3] == ["x", "cloud-us", "rejected"]
    for part in (
        "What each cluster would cost",
        "Rejected",
        "cloud-us is not legal for radar-2026",
        "nobody  cloud-us is not legal",
        "What would have changed the answer",
        "cloud-eu: would have been chosen $13.80 cheaper",
        "History, newest first",
        FIRST_WAIT.id,
        "policy cccccccccccccccc, run time 1 h (as declared)",
        "cloud-us: never seen: connection refused",
    ):
        assert part in shown.out
    assert max(len(line) for line in lines) <= 100


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_screen_has_a_column_a_cluster_and_cuts_no_amount(
    entrepot: Terminal, server: str, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = entrepot("why", "team-a/train", "--server", server)
    table = shown.out.partition("What each cluster would cost")[2].partition("Rejected")[0]
    for part in ("> onprem-1", "cloud-eu", "x cloud-us", "$41.20", "$36.00", "$55.00", "rejected"):
        assert part in table
    assert "\u2026" not in table
    assert max(len(line) for line in table.splitlines()) <= columns


def test_an_id_is_whole_where_the_list_is_narrow(
    entrepot: Terminal, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert CHOICE.id in entrepot("decisions", "--server", server).out


def test_nothing_asked_is_answered_with_what_can_be_asked(entrepot: Terminal) -> None:
    shown = entrepot()
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("Usage: entrepot")


def test_why_of_a_waiting_job_lists_what_it_waits_for(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "eval", "--server", server)
    assert shown.code == 0, "waiting is an answer, not an error"
    assert "waiting for a cluster for 12m" in shown.out
    assert "Waits since 2026-03-02 09:18:00Z, number 1 in line" in shown.out
    assert "onprem-1: lacks 6 h100" in shown.out
    assert "waits: no cluster" not in shown.out, "the reasons stand there one by one"


def test_why_of_a_held_job_names_key_value_and_fix(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "broken", "--server", server)
    assert "entrepot.dev/datasets = 'radar-2062': is not in the catalog" in shown.out
    assert "fix: did you mean 'radar-2026'?" in shown.out


def test_wide_shows_what_each_amount_is_made_of(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "team-a/train", "-o", "wide", "--server", server)
    assert "How onprem-1's cost is made up" in shown.out
    assert "[price book]" in shown.out


def test_why_not_shows_the_two_costs_side_by_side(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why-not", "team-a/train", "cloud-eu", "--server", server)
    assert (shown.code, "$41.20" in shown.out, "$55.00" in shown.out) == (0, True, True)


def test_why_not_a_rejected_cluster_shows_every_reason(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why-not", "team-a/train", "cloud-us", "--server", server)
    assert "is not legal for radar-2026" in shown.out
    assert "lacks 6 h100" in shown.out


def test_queue_separates_what_waits_from_what_runs(entrepot: Terminal, server: str) -> None:
    shown = entrepot("queue", "--server", server)
    waiting, placed = shown.out.split("Placed (1)")
    assert "team-b/eval" in waiting
    assert "did you mean 'radar-2026'?" in waiting
    assert "running on onprem-1 for 11m, seen 3s ago" in placed
    none = entrepot("queue", "-n", "team-c", "--server", server)
    assert (none.out, none.err) == ("nothing waits and nothing runs\n", "note: only namespace team-c was asked for\n")


@pytest.mark.parametrize(
    ("synced", "seen_s", "told"),
    [
        pytest.param(True, 59, "", id="within the limit nothing is said"),
        pytest.param(
            True,
            240,
            "the hub has been silent for 4m: this is what it held then, and nothing is decided until it is back\n",
            id="a silent hub's age is told",
        ),
        pytest.param(
            False,
            None,
            "the hub has not been read completely yet: this list may be short\n",
            id="a hub that was never heard of has no age",
        ),
        pytest.param(
            False,
            240,
            "the hub has not been read completely yet: this list may be short; last heard of 4m ago\n",
            id="a hub that is read anew has one",
        ),
    ],
)
def test_queue_says_how_old_the_hub_is_where_it_matters(
    entrepot: Terminal, records: Path, synced: bool, seen_s: int | None, told: str
) -> None:
    world = World()
    seen = None if seen_s is None else NOW - timedelta(seconds=seen_s)
    world.hub.shown = replace(world.hub.shown, synced=synced, observed_at=seen)
    with served(build_api(world.state, FileStore(records), world.vitals)) as url:
        assert entrepot("queue", "--server", url).out == f"{told}nothing waits and nothing runs\n"
        data = json.loads(entrepot("queue", "-o", "json", "--server", url).out)
    link = "blind" if not synced else "stale" if told else "connected"
    assert (data["hub_link"], data["hub_age_s"]) == (link, seen_s)


def test_clusters_shows_unknown_as_unknown(entrepot: Terminal, server: str) -> None:
    rows = {line.split()[0]: line.split() for line in entrepot("clusters", "--server", server).out.splitlines()}
    assert rows["onprem-1"][2:7] == ["2/2", "8/16", "1", "0", "0"]
    assert rows["cloud-us"][2:7] == ["?", "?", "?", "?", "0"]
    assert "connection refused" in " ".join(rows["cloud-us"])


def test_decisions_lists_narrows_and_shows_one_in_full(entrepot: Terminal, server: str) -> None:
    assert entrepot("decisions", "--server", server).out.count("\n") == 5
    assert entrepot("decisions", "team-a/train", "--server", server).out.count("\n") == 3
    assert entrepot("decisions", "--outcome", "wait", "--limit", "1", "--server", server).out.count("\n") == 2
    one = entrepot("decisions", CHOICE.id, "--server", server)
    assert "What each cluster would cost" in one.out
    assert f"decision {CHOICE.id}" in one.out


@pytest.mark.parametrize("kept", [False, True], ids=["from the daemon", "from records"])
def test_a_decision_is_shown_by_the_beginning_of_its_id(
    entrepot: Terminal, server: str, records: Path, kept: bool
) -> None:
    where = ("--server", NOWHERE, "--store", str(records)) if kept else ("--server", server)
    assert f"decision {EVAL_WAIT.id}" in entrepot("decisions", "d000000000000003", *where).out
    assert f"decision {FIRST_WAIT.id}" in entrepot("decisions", FIRST_WAIT.id[:16], *where).out
    several = entrepot("decisions", "d0000000", *where)
    assert (several.code, several.out) == (2, "")
    assert f"the ids of 4 decisions begin with d0000000: {FIRST_WAIT.id}, {CHOICE.id}" in several.err
    assert "write more of the id" in several.err
    for unknown in ("dead", "deadbeefdeadbeef"):
        shown = entrepot("decisions", unknown, *where)
        assert shown.code == 3
        assert f"there is no decision whose id is {unknown} or begins with it, and no job of that name" in shown.err
    short = entrepot("decisions", "d00", *where)
    assert (short.code, short.out) == (3, "")
    assert "no job d00, and as the beginning of a decision's id it is too short: at least 4 letters" in short.err
    assert "write more of the id" in short.err


def test_why_names_one_id_also_where_a_wait_was_found_again(entrepot: Terminal, records: Path) -> None:
    world, waiting = World(), workload("team-b/job-eval-77", "eval")
    world.show(waiting)
    again = replace(EVAL_WAIT, id=DecisionId("eeee000000000003"), decided_at=NOW)
    world.state.latest[waiting.uid] = replace(again, workload=waiting.uid)
    with served(build_api(world.state, FileStore(records), world.vitals)) as url:
        for command in (("why", "eval"), ("why-not", "eval", "cloud-us")):
            page = entrepot(*command, "--server", url).out
            assert f"decision {EVAL_WAIT.id}, attempt 1; found the same again at 2026-03-02" in page
            assert again.id not in page


@pytest.mark.parametrize("columns", [80, 200])
def test_a_start_that_nobody_works_out_is_unknown_and_no_blank(
    entrepot: Terminal, records: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    world = World()
    waiting = workload("team-b/job-eval-77", "eval", priority=5)
    world.show(waiting)
    world.state.turns = {waiting.uid: turn_of(bid_of(waiting, None, world.state.policy), OrderRules())}
    known = entrepot_pages(entrepot, world, records)
    world.state.beyond = {waiting.uid}
    queue, why = entrepot_pages(entrepot, world, records)
    row = next(line for line in queue.splitlines() if "team-b/eval" in line)
    assert "?" in row.split()
    assert "START ?: not worked out: beyond the first 16 that wait for room" in queue
    assert "when it starts is not worked out: beyond the first 16 that wait for room" in why
    assert not [page for page in known if "worked out" in page or "?" in page.split()]


def entrepot_pages(entrepot: Terminal, world: World, records: Path) -> tuple[str, str]:
    """What `queue` and `why eval` show of a world."""
    with served(build_api(world.state, FileStore(records), world.vitals)) as url:
        return entrepot("queue", "--server", url).out, entrepot("why", "eval", "--server", url).out


@pytest.mark.parametrize("columns", [50, 80])
def test_on_a_narrow_screen_the_queue_puts_the_reason_below_its_job_and_cuts_nothing(
    entrepot: Terminal, server: str, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = entrepot("queue", "--server", server).out.splitlines()
    assert lines[1].split() == ["#", "JOB", "PRIO", "SINCE", "SHARE", "START"]
    assert lines[2].split() == ["1", "team-b/eval", "5", "12m", "-", "-"]
    assert lines[3].startswith("   waits: ")
    assert "\u2026" not in "".join(lines)
    assert max(len(line) for line in lines) <= columns


def test_wide_lists_cut_nothing_and_leave_nothing_out_whatever_the_screen(
    entrepot: Terminal, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in ("80", "100", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        page = entrepot("queue", "-o", "wide", "--server", server).out
        told = " ".join(page.split())
        assert "\u2026" not in page, columns
        for part in ("team-b/eval", "job-eval-77", "team-b/broken", "training", "entrepot.dev/datasets = 'radar-2062'"):
            assert part in told, (columns, part)
        assert "running on onprem-1 for 11m, seen 3s ago" in told


@pytest.mark.parametrize("asked", [("version",), ("--version",)], ids=["a command", "an option"])
def test_version_names_the_program(entrepot: Terminal, asked: tuple[str, ...]) -> None:
    assert entrepot(*asked).out.startswith("entrepot ")
    assert "version" in json.loads(entrepot("version", "-o", "json").out)


# --- for scripts -------------------------------------------------------------------------------------------------

COMMANDS = [
    ("why", "team-a/train"),
    ("why-not", "team-a/train", "cloud-eu"),
    ("queue",),
    ("clusters",),
    ("decisions",),
    ("decisions", CHOICE.id),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command) for command in COMMANDS])
def test_json_and_yaml_hold_the_same_in_the_same_order(
    entrepot: Terminal, server: str, command: tuple[str, ...]
) -> None:
    as_json = json.loads(entrepot(*command, "-o", "json", "--server", server).out)
    as_yaml = yaml.safe_load(entrepot(*command, "-o", "yaml", "--server", server).out)
    assert json.loads(json.dumps(as_yaml, default=str)) == as_json
    assert list(as_yaml) == list(as_json)
    again = entrepot(*command, "-o", "json", "--server", server).out
    assert json.loads(again) == as_json


def test_money_in_json_is_integer_micro_usd_with_its_text(entrepot: Terminal, server: str) -> None:
    why = json.loads(entrepot("why", "team-a/train", "-o", "json", "--server", server).out)
    assert why["decision"]["total"] == {"usd_micro": 41_200_000, "text": "$41.20"}
    assert why["workload"]["state"]["code"] == "running"


def test_there_is_no_colour_off_a_terminal(entrepot: Terminal, server: str) -> None:
    for command in COMMANDS:
        assert "\x1b[" not in entrepot(*command, "--server", server).out


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "job",
    [
        "team-a/train",
        "job-train-1f3a",
        "job/train",
        "jobs.batch/train",
        "team-a/job/train",
        "workload/job-train-1f3a",
    ],
)
def test_a_job_is_found_by_every_way_to_write_it(entrepot: Terminal, server: str, job: str) -> None:
    shown = entrepot("why", job, "-o", "json", "--server", server)
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["name"] == "job-train-1f3a"


def test_a_namespace_option_completes_a_bare_name(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "train", "-n", "team-b", "-o", "json", "--server", server)
    assert json.loads(shown.out)["name"] == "jobset-train-5"


def test_a_job_known_from_records_only_is_found_by_its_bare_name(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "old", "--server", server)
    assert (shown.code, "no longer on the hub" in shown.out) == (0, True)


def test_an_ambiguous_name_lists_what_it_may_be(entrepot: Terminal, server: str) -> None:
    shown = entrepot("why", "train", "--server", server)
    assert (shown.code, shown.out) == (2, "")
    assert "team-a/job/train, team-b/jobset/train" in shown.err
    assert entrepot("why", "team-b/jobset/train", "--server", server).code == 0


# --- exit codes and errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["why", "nobody"], 3, "there is no job or Workload nobody"),
        (["why", "team-a/trian"], 3, "did you mean team-a/train"),
        (["why", "brok"], 3, "did you mean team-b/broken"),
        (["why-not", "team-a/train", "mars"], 3, "no cluster mars"),
        (["why-not", "broken", "cloud-eu"], 3, "nothing has been decided on"),
        (["decisions", "team-a/nobody"], 3, "there is no job"),
    ],
    ids=["no such job", "a misspelt job", "part of a name", "no such cluster", "not decided yet", "no decisions"],
)
def test_not_found_is_3_on_standard_error(
    entrepot: Terminal, server: str, arguments: list[str], code: int, told: str
) -> None:
    shown = entrepot(*arguments, "--server", server)
    assert (shown.code, shown.out) == (code, "")
    assert told in shown.err
    assert shown.err.startswith("error: ")
    assert "\n  where: " in shown.err
    assert "\n  fix:   " in shown.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["why"],
        ["wyh", "train"],
        ["why", "train", "--colour"],
        ["why", "train", "-o", "xml"],
        ["why", "Train"],
        ["why", "a/b/c/d"],
        ["why", "team-a/train", "-n", "team-b"],
        ["why", "train", "--server", "localhost"],
        ["why-not", "train", "cloud eu"],
        ["queue", "--limit", "0"],
        ["decisions", "train", "--cluster", "cloud-eu"],
        ["serve", "--speed", "2"],
        ["serve", "--embedded", "--kubeconfig", "x"],
        ["blueprint", "lint", "no-such-folder"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_bad_usage_is_2(entrepot: Terminal, arguments: list[str]) -> None:
    shown = entrepot(*arguments)
    assert shown.code == 2 if arguments else shown.code in (0, 2)
    if arguments:
        assert shown.err.startswith("error: ")
        assert "fix:" in shown.err


def test_an_unreachable_daemon_is_4_and_says_what_to_do(entrepot: Terminal) -> None:
    for command in COMMANDS:
        shown = entrepot(*command, "--server", NOWHERE)
        assert (shown.code, shown.out) == (4, "")
        assert NOWHERE in shown.err
        assert "entrepot serve" in shown.err


def test_the_server_comes_from_the_environment(
    entrepot: Terminal, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTREPOT_SERVER", server)
    assert entrepot("clusters").code == 0


def test_a_store_that_fails_behind_a_working_daemon_is_1(entrepot: Terminal) -> None:
    class Broken(FileStore):
        async def recent(self, limit: int = 50, cluster: object = None, outcome: object = None) -> Sequence[Decision]:
            raise Transient("store: reading decisions: disk I/O error")

    world = World()
    with served(build_api(world.state, Broken(Path("nowhere")), world.vitals)) as url:
        shown = entrepot("decisions", "--server", url)
    assert shown.code == 1
    assert "disk I/O error" in shown.err


def test_an_answer_of_something_else_is_1_and_names_the_address(entrepot: Terminal) -> None:
    from fastapi import FastAPI

    with served(FastAPI()) as url:
        shown = entrepot("clusters", "--server", url)
    assert (shown.code, "is this the address of an Entrepot daemon?" in shown.err) == (1, True)


def test_an_answer_with_fields_of_a_newer_daemon_is_read_and_passed_on(entrepot: Terminal) -> None:
    from fastapi import FastAPI

    app = FastAPI()

    @app.get("/v1/clusters")
    async def clusters() -> dict[str, object]:
        return {"now": "2026-03-02T09:30:00Z", "items": [], "weather": "fair"}

    with served(app) as url:
        assert entrepot("clusters", "--server", url).code == 0
        assert json.loads(entrepot("clusters", "-o", "json", "--server", url).out)["weather"] == "fair"


# --- records while the daemon is down ----------------------------------------------------------------------------


def test_why_is_answered_from_records_and_says_so(entrepot: Terminal, records: Path) -> None:
    shown = entrepot("why", "train", "--server", NOWHERE, "--store", str(records))
    assert shown.code == 0
    assert shown.err.startswith("note: the daemon cannot be reached")
    assert "from records alone" in shown.out
    assert "$41.20" in shown.out
    view = json.loads(entrepot("why", "train", "-o", "json", "--server", NOWHERE, "--store", str(records)).out)
    assert (view["from_records"], view["workload"]) == (True, None)


def test_why_not_and_decisions_are_answered_from_records(entrepot: Terminal, records: Path) -> None:
    down = ("--server", NOWHERE, "--store", str(records))
    assert "is not legal" in entrepot("why-not", "team-a/train", "cloud-us", *down).out
    assert entrepot("decisions", *down).out.count("\n") == 5
    assert entrepot("decisions", "--cluster", "onprem-1", *down).out.count("\n") == 3
    assert "What each cluster would cost" in entrepot("decisions", CHOICE.id, *down).out
    assert entrepot("why", "nobody", *down).code == 3


def test_fr_cli_04_a_past_decision_is_told_cluster_by_cluster_with_the_numbers_that_were_used(
    entrepot: Terminal, records: Path
) -> None:
    """Twelve minutes ago it waited, then it was placed: each is found by its time, and the daemon is down."""
    down = ("--server", NOWHERE, "--store", str(records))
    before = records.stat().st_mtime_ns
    listed = json.loads(entrepot("decisions", "team-a/train", "-o", "json", *down).out)["items"]
    by_time = {entry["decided_at"]: entry["id"] for entry in listed}
    assert list(by_time.values()) == [CHOICE.id, FIRST_WAIT.id]
    shown = json.loads(entrepot("decisions", by_time[listed[0]["decided_at"]], "-o", "json", *down).out)
    assert shown["policy_digest"] == CHOICE.policy_digest
    told = {candidate["cluster"]: candidate for candidate in shown["candidates"]}
    for used in CHOICE.candidates:
        found = told[used.cluster]
        amounts = [term["amount"]["usd_micro"] for term in found["terms"] if term["amount"] is not None]
        assert amounts == [t.amount_usd_micro for t in used.terms if t.amount_usd_micro is not None]
        assert [r["reason"] for r in found["rejections"]] == [r.reason for r in used.rejections]
        assert found["fit"] == used.fit
    page = entrepot("decisions", FIRST_WAIT.id, *down).out
    for candidate in FIRST_WAIT.candidates:
        assert candidate.cluster in page
    assert records.stat().st_mtime_ns == before, "reading changes nothing"


def test_fr_cli_04_why_at_a_time_is_the_decision_that_stood_then(entrepot: Terminal, records: Path) -> None:
    """From the daemon and without it the same page; before the first decision an answer that says so."""
    down = ("--server", NOWHERE, "--store", str(records))
    between = CHOICE.decided_at - timedelta(seconds=1)
    then = entrepot("why", "team-a/train", "--at", CHOICE.decided_at.isoformat(), *down)
    assert (then.code, CHOICE.id in then.out, "What each cluster would cost" in then.out) == (0, True, True)
    assert CHOICE.policy_digest in then.out
    before = json.loads(entrepot("why", "train", "--at", between.isoformat(), "-o", "json", *down).out)
    assert before["id"] == FIRST_WAIT.id
    assert {c["cluster"] for c in before["candidates"]} == {c.cluster for c in FIRST_WAIT.candidates}
    with served(build_api(World().state, FileStore(records), World().vitals)) as url:
        live = entrepot("why", "team-a/train", "--at", CHOICE.decided_at.isoformat(), "--server", url)
    assert live.out == then.out
    early = entrepot("why", "team-a/train", "--at", "2020-01-01T00:00:00Z", *down)
    assert (early.code, "the first kept is of" in early.err) == (3, True)
    assert entrepot("why", "team-a/train", "--at", "yesterday", *down).code == 2


def test_fr_cli_01_what_a_worker_evicted_is_not_running_on_any_page(entrepot: Terminal, records: Path) -> None:
    world, placed = World(), admitted_on("onprem-1")
    world.show(placed)
    gone = {"evicted_at": NOW - timedelta(minutes=12), "evicted_reason": "Preempted"}
    world.show_worker(worker("onprem-1", copy_of(placed, **gone)))
    with served(build_api(world.state, FileStore(records), world.vitals)) as url:
        for page in (entrepot("why", "team-a/train", "--server", url).out, entrepot("queue", "--server", url).out):
            assert "not running: evicted on onprem-1 12m ago (Preempted)" in " ".join(page.split())


def test_records_that_cannot_be_read_are_1_with_the_fix(entrepot: Terminal, tmp_path: Path) -> None:
    shown = entrepot("why", "train", "--server", NOWHERE, "--store", str(tmp_path / "none.db"))
    assert (shown.code, "--store FILE" in shown.err) == (1, True)


def test_a_bare_name_in_two_namespaces_is_ambiguous_in_records_too(entrepot: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    seed(file, decision(1), decision(2, key="team-q/job-train-8"))
    shown = entrepot("why", "train", "--server", NOWHERE, "--store", str(file))
    assert (shown.code, "team-a/train, team-q/train" in shown.err) == (2, True)


def test_colour_is_for_terminals_and_no_color_wins(
    entrepot: Terminal, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    coloured = entrepot("clusters", "--server", server).out
    assert "\x1b[32m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in entrepot("clusters", "--server", server).out


@pytest.mark.slow
def test_a_reader_that_goes_is_no_failure() -> None:
    """As in `entrepot simulate | head -1`: what is left to print has nowhere to go, and that is all right."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "dispatcher.cli.main", "simulate"]
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, cwd=ROOT, timeout=60, check=False)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["version", "--help", "simulate"])
def test_a_full_disk_behind_standard_output_is_told_in_one_line(arguments: str) -> None:
    command = [sys.executable, "-m", "dispatcher.cli.main", *arguments.split()]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=False)
    assert (ran.returncode, ran.stderr.splitlines()) == (
        1,
        ["error: cannot be written: No space left on device", "  where: standard output", "  fix:   make room there"],
    )


@pytest.mark.slow
def test_a_closed_standard_output_is_no_failure() -> None:
    command = f"'{sys.executable}' -m dispatcher.cli.main version >&-"
    ran = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, cwd=ROOT, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_pair_of_keys_is_made_whole_or_not_at_all(entrepot: Terminal, tmp_path: Path) -> None:
    (tmp_path / "team.pub").write_text("another's")
    ran = entrepot("policy", "keygen", str(tmp_path / "team"))
    assert ran.code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["team.pub"]
    assert (tmp_path / "team.pub").read_text() == "another's"
