"""What-if on the live queue: another price, a cluster less; told by name, and nothing written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dispatcher.cli.files import unfinished, write_whole
from dispatcher.cli.main import run
from dispatcher.core.bids import bid_of
from dispatcher.core.ids import ClusterName, QueueName
from dispatcher.core.illegal import Sight
from dispatcher.core.order import turn_of
from dispatcher.core.policy import Policy
from dispatcher.core.snapshot import Stake
from dispatcher.core.work import Lore, Workbook, workbook
from dispatcher.core.workload import Avoided, UsualRun, WorkloadClass
from dispatcher.logs import get_logger
from dispatcher.sim.whatif import Effect, cost_of, what_if, without
from dispatcher.store.documents import encode_snapshot, taken_snapshot
from tests.loops.bench import CONFIG, Bench
from tests.loops.jobs import gang


def waiting(bench: Bench, reads: Mapping[str, str | None]) -> Workbook:
    """Jobs that have their quota on the hub, and nobody has decided on, with the data sets that they read."""
    for name, data in reads.items():
        bench.fleet.submit(gang(name, says={"datasets": data} if data is not None else {}))
    bench.clock.advance(1.0)
    bench.fleet.advance()
    state = bench.state
    return workbook(Sight(state.hub_view(), state.worker_views(), state.policy, {}, bench.clock.now()))


def plainly(*names: str) -> Mapping[str, str | None]:
    return dict.fromkeys(names)


def dearer(policy: Policy, times: int) -> Policy:
    compute = {
        key: replace(price, usd_micro_per_hour=price.usd_micro_per_hour * times)
        for key, price in policy.prices.compute.items()
    }
    return replace(policy, digest="dearer", prices=replace(policy.prices, compute=compute))


async def test_the_same_blueprint_changes_nothing(bench: Bench) -> None:
    book = waiting(bench, plainly("train-1", "train-2"))

    found = what_if(book, bench.state.snapshot(bench.clock.now()), bench.state.policy)

    assert [turn.job for turn in found.turns] == ["train-1", "train-2"]
    assert {turn.effect for turn in found.turns} == {Effect.SAME}


async def test_another_price_is_told_in_money(bench: Bench) -> None:
    book = waiting(bench, plainly("train-1"))

    (turn,) = what_if(book, bench.state.snapshot(bench.clock.now()), dearer(bench.state.policy, 2)).turns

    assert turn.effect is Effect.DEARER
    before, after = cost_of(turn.now), cost_of(turn.then)
    assert before is not None
    assert after is not None
    assert turn.change_usd_micro == after - before > 0


async def test_the_queue_is_decided_in_the_order_of_the_line_and_by_what_the_daemon_knows(bench: Bench) -> None:
    """The last that came has the first turn, is known to have been stopped once on a cluster, and work of its queue is
    known to run for 20 minutes."""
    waiting(bench, plainly("train-1", "train-2", "train-3"))
    state, last = bench.state, bench.workload("train-3")
    turns = {
        w.uid: turn_of(bid_of(w, None, state.policy), state.policy.order) for w in state.hub_view().workloads.values()
    }
    turns[last.uid] = replace(turns[last.uid], at=turns[last.uid].at - timedelta(hours=1))
    avoided = Avoided(ClusterName("onprem-eu"), "evicted-here", bench.clock.now(), None, excluded=True)
    usual = UsualRun(1200, 7)
    lore = Lore(turns, {(QueueName("autonomy-training"), WorkloadClass.TRAINING): usual}, {last.uid: (avoided,)})
    sight = Sight(state.hub_view(), state.worker_views(), state.policy, {}, bench.clock.now())

    book = workbook(sight, lore)

    assert [work.request.job_name for work in book.work] == ["train-3", "train-1", "train-2"]
    assert (book.work[0].request.avoided, book.work[0].request.usual) == ((avoided,), usual)
    found = what_if(book, state.snapshot(bench.clock.now()), state.policy)
    assert found.turns[0].now.estimate.duration_s == 1200
    assert found.turns[0].now.chosen != "onprem-eu"


async def test_a_cluster_less_sends_its_jobs_elsewhere_or_keeps_them_back(bench: Bench) -> None:
    book = waiting(bench, plainly("train-1"))
    policy = bench.state.policy
    snapshot = bench.state.snapshot(bench.clock.now())
    (before,) = what_if(book, snapshot, policy).turns
    chosen = before.now.chosen
    assert chosen is not None
    rest = {name: cluster for name, cluster in policy.clusters.items() if name != chosen}

    (turn,) = what_if(book, snapshot, replace(policy, digest="less", clusters=rest)).turns

    assert turn.effect in {Effect.ELSEWHERE, Effect.KEPT_BACK}
    assert turn.then is not None
    assert turn.then.chosen != chosen


async def test_those_before_in_the_queue_take_their_places_from_those_behind(bench: Bench) -> None:
    book = waiting(bench, plainly(*(f"train-{number:02d}" for number in range(40))))

    found = what_if(book, bench.state.snapshot(bench.clock.now()), bench.state.policy)

    places = [turn.now.chosen for turn in found.turns]
    assert len(set(places)) > 1
    assert places[-1] is None


def test_the_changed_fleet_is_the_same_but_for_what_it_no_longer_names(bench: Bench) -> None:
    stakes = {"autonomy/train-1": Stake(WorkloadClass.TRAINING, 3600)}
    snapshot = replace(bench.state.snapshot(bench.clock.now()), wall_ahead_s=30, stakes=stakes)
    policy = bench.state.policy
    assert without(snapshot, policy, policy) == snapshot
    less = replace(policy, clusters={n: c for n, c in policy.clusters.items() if n != "cloud-c-us"})
    changed = without(snapshot, policy, less)
    assert [c.name for c in changed.clusters] == [c.name for c in snapshot.clusters if c.name != "cloud-c-us"]
    assert (changed.wall_ahead_s, changed.stakes) == (30, stakes)


NOT_AT_HOME = """\
rules:
  internal-not-at-home:
    labels: [internal]
    flows: [process, cache]
    effect: forbid
    when:
      destination.country: {in: [%s]}
"""


@pytest.mark.parametrize(
    ("countries", "effect", "then", "because"),
    [
        ("DE", "elsewhere", "cloud-a-fi", "onprem-eu is not legal for radar-2026"),
        ("DE, FI, FR, US", "kept-back", None, "onprem-eu is not legal for radar-2026"),
        ("JP", "same", "onprem-eu", ""),
    ],
    ids=["closes the place that it has", "closes every place", "closes no place that there is"],
)
async def test_a_rule_more_is_told_by_name_from_the_command_line(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    countries: str,
    effect: str,
    then: str,
    because: str,
) -> None:
    """One job reads data that the rule binds, another public data. The rule is in a copy of the blueprint's folder."""
    book = waiting(bench, {"bound": "radar-2026", "free": "public-roads"})
    state, now = bench.state, bench.clock.now()
    file, changed = tmp_path / "now.json", tmp_path / "changed"
    file.write_bytes(encode_snapshot(taken_snapshot(state.hub_view(), state.snapshot(now), "p", now, book)))
    shutil.copytree(CONFIG, changed)
    (changed / "residency" / "more.yaml").write_text(NOT_AT_HOME % countries)

    code = run(["simulate", "--from-snapshot", str(file), "--blueprint", str(changed), "-o", "json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["policy_now"] != told["policy_then"]
    found = {each["job"]: each for each in told["workloads"]}
    assert found["free"]["effect"] == "same"
    bound = found["bound"]
    assert (bound["effect"], bound["now"]["cluster"], bound["then"]["cluster"]) == (effect, "onprem-eu", then)
    assert bound["because"].startswith(because)
    if effect != "same":
        assert "rule internal-not-at-home" in bound["because"]
        assert "residency/more.yaml:" in bound["because"]

    assert run(["simulate", "--from-snapshot", str(file), "--blueprint", str(changed), "-o", "wide"]) == 0
    table = capsys.readouterr().out
    counts = {"same": "2 same", "elsewhere": "1 elsewhere, 1 same", "kept-back": "1 kept-back, 1 same"}
    assert f"2 wait: {counts[effect]}" in table
    rows = [line for line in table.splitlines() if line.startswith((effect, "same"))]
    assert len(rows) == 2, "a line a job, whatever stands below it"
    if effect != "same":
        assert "autonomy/bound" in rows[0]
        below = " ".join(table.partition(rows[0])[2].split())
        assert below.startswith(because)
        assert len(table.splitlines()) < 16, "a reason has the width of the screen"


@pytest.mark.parametrize("output", ["table", "wide", "json"])
async def test_the_command_tells_it(
    bench: Bench, tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    book = waiting(bench, plainly("train-1"))
    state, now = bench.state, bench.clock.now()
    file = tmp_path / "now.json"
    file.write_bytes(encode_snapshot(taken_snapshot(state.hub_view(), state.snapshot(now), "p", now, book)))

    code = run(["simulate", "--from-snapshot", str(file), "--blueprint", str(CONFIG), "-o", output])

    shown = capsys.readouterr().out
    assert code == 0
    if output == "json":
        assert [each["effect"] for each in json.loads(shown)["workloads"]] == ["same"]
    else:
        assert "1 wait: 1 same" in shown


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--from-snapshot", "now.json"], id="a snapshot without a blueprint"),
        pytest.param(["small", "--from-snapshot", "now.json", "--blueprint", "config"], id="a scenario and a snapshot"),
        pytest.param(["smal"], id="no such scenario"),
        pytest.param(["small", "--compare", "best"], id="no such contender"),
        pytest.param(["small", "--load", "inf"], id="a load without an end"),
        pytest.param(["small", "--load", "1e300"], id="a load that no fleet could be under"),
        pytest.param(["small", "--seeds", "1000000000"], id="more seeds than anybody waits for"),
        pytest.param(["small", "--days", "3"], id="days of what is no trace"),
        pytest.param(["small", "--format", "csv"], id="a format without a folder"),
        pytest.param(["small", "-o", "json"], id="a form that a report does not have"),
        pytest.param(["--load", "1.2"], id="a load of nothing"),
        pytest.param(["--from-snapshot", "a", "--blueprint", "b", "--load", "2"], id="a load of a snapshot"),
        pytest.param(["--from-snapshot", "nowhere.json", "--blueprint", "config"], id="no such snapshot"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *words]) == 2
    assert "fix:" in capsys.readouterr().err


def test_a_fleet_that_does_not_load_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "small", "--fleet", str(tmp_path)]) == 5
    assert "where: --fleet" in capsys.readouterr().err


# --- files ---


def test_files_are_put_into_the_folder_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("of yesterday")
    with suppress(KeyboardInterrupt), unfinished(tmp_path) as made:
        (made / "jobs.csv").write_text("half of")
        raise KeyboardInterrupt
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("jobs.csv", "of yesterday")]
    with unfinished(tmp_path) as made:
        (made / "jobs.csv").write_text("of today")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("jobs.csv", "of today")]


def test_a_file_is_written_whole_also_through_a_link_and_into_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("before")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"after")
    write_whole(Path("/dev/null"), b"gone")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "after"


# --- from the command line ---------------------------------------------------------------------------------------


def test_what_loops_log_is_no_part_of_a_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The same bytes for a seed: a log line would carry the time of day."""
    trace = tmp_path / "two.csv"
    columns = "job_id,submit_s,gpus,gpus_per_worker,workers,gpu_type,duration_s,queue,user,class"
    trace.write_text(f"{columns}\na,0,8,8,1,,600,q,u,\nb,5,8,8,1,,600,q,u,\n")

    assert run(["simulate", str(trace), "--compare", "entrepot"]) == 0
    get_logger().warning("finding", code="copy-evicted")

    told = capfd.readouterr()
    assert "entrepot" in told.out
    assert "finding" not in told.out + told.err
