"""`entrepot policy diff` and `policy explain` on work that waits and runs: from the embedded fleet, through a snapshot
file, to what is printed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.cli.main import run as cli
from dispatcher.core.illegal import Sight
from dispatcher.core.impact import Effect, Impact, impact
from dispatcher.core.policy import Policy
from dispatcher.core.waiting import Phase
from dispatcher.core.work import Stage, Workbook, workbook
from dispatcher.store import CodecError
from dispatcher.store.documents import decode_workbook, encode_snapshot, encode_workbook, taken_snapshot
from residency.bundle import bundle_of
from residency.facts import Gap
from residency.obligations import Duty, Obligation
from residency.vocabulary import Running
from tests.loops.bench import CONFIG, Bench, example
from tests.loops.jobs import gang
from tests.loops.lawful import EVERYWHERE, RULE, forbidden, internal, law, permitted, waiver


@pytest_asyncio.fixture
async def book(bench: Bench) -> Workbook:
    """`runs` runs, `camera` (personal data) runs, `stuck` waits since no cluster is so large, `odd` cannot be read."""
    for name, data in (("runs", "radar-2026"), ("camera", "camera-eu")):
        says = {"datasets": data, "expected-duration": "PT4H"}
        bench.fleet.submit(gang(name, duration="14400s", says=says))
    await bench.until(lambda: {bench.phase("runs"), bench.phase("camera")} == {Phase.PLACED})
    bench.fleet.submit(gang("stuck", pods=64, says={"datasets": "radar-2026"}))
    bench.fleet.submit(gang("odd", says={"datasets": "no-such-set"}))
    for _ in range(5):
        await bench.step()
    state = bench.state
    return workbook(Sight(state.hub_view(), state.worker_views(), state.policy, dict(state.latest), bench.clock.now()))


def by_name(found: Impact) -> dict[str, tuple[Effect, ...]]:
    return {change.work.request.job_name: change.effects for change in found.changes}


def under(policy: Policy, book: Workbook, base: Policy | None = None) -> Impact:
    return impact(base or permitted(), policy, [w for w in book.work if w.request.job_name != "camera"], book.taken_at)


async def test_work_is_taken_with_its_stage_its_place_and_what_cannot_be_understood(book: Workbook) -> None:
    stages = {one.request.job_name: (one.stage, len(one.places)) for one in book.work}
    assert stages == {"runs": (Stage.RUNNING, 1), "camera": (Stage.RUNNING, 1), "stuck": (Stage.QUEUED, 0)}
    running = next(one for one in book.work if one.request.job_name == "runs")
    assert running.places[0][1], "the flavor that it has is known from its copy"
    assert [key.partition("/")[0] for key in book.unread] == ["autonomy"]


async def test_the_same_rules_differ_in_nothing(book: Workbook) -> None:
    policy, _ = example()
    assert impact(policy, policy, book.work, book.taken_at).empty
    again = replace(policy, residency=bundle_of(policy.residency))
    assert impact(policy, again, book.work, book.taken_at).empty


async def test_what_runs_becomes_illegal_by_the_rule_that_permitted_it(book: Workbook) -> None:
    found = under(forbidden(Running.STOP_NOW), book)
    assert by_name(found) == {
        "runs": (Effect.DENIED_RUNNING, Effect.NARROWED),
        "stuck": (Effect.DENIED_QUEUED,),
    }
    change = found.of(Effect.DENIED_RUNNING)[0]
    assert (change.course, change.now) == (Running.STOP_NOW, ())
    assert change.stands[0].because is not None
    assert change.stands[0].because.because.rule == RULE
    assert change.gpu_seconds == 8 * 4 * 3600
    assert change.usd_micro is not None
    assert change.usd_micro > 0
    assert found.total(Effect.DENIED_QUEUED).count == 1


async def test_a_rule_that_is_gone_is_named_all_the_same(book: Workbook) -> None:
    other = replace(internal(("JP",)), id="another-rule")
    change = under(law(other), book).of(Effect.DENIED_RUNNING)[0]
    assert change.stands[0].because is not None
    assert (change.stands[0].because.because.rule, change.stands[0].because.because.clause) == (RULE, "")


async def test_widening_is_seen_in_passages_and_for_work(book: Workbook) -> None:
    found = under(permitted(), book, forbidden())
    assert found.widened
    assert set(by_name(found).values()) == {(Effect.WIDENED,)}
    assert {p.place for p in found.opened} >= {"onprem-eu", "cloud-c-us"}
    assert all(RULE in p.permits for p in found.opened)
    assert not found.closed


async def test_an_exception_widens_for_its_scope_alone(book: Workbook) -> None:
    lifted = law(internal(("JP",)), waivers=(waiver(24),))
    found = under(lifted, book, forbidden())
    assert found.widened
    assert {turn.cluster for change in found.changes for turn in change.opened} == {"onprem-eu"}


async def test_fewer_targets_are_counted(book: Workbook) -> None:
    change = next(c for c in under(law(internal(("FI", "DE"))), book).changes if c.work.request.job_name == "stuck")
    assert change.effects == (Effect.NARROWED,)
    assert (len(change.was), len(change.now)) == (4, 2)


async def test_duties_that_are_added_are_told(book: Workbook) -> None:
    rule = replace(internal(EVERYWHERE), obligations=(Obligation(Duty.RECORD, words=("image_digest",)),))
    found = under(law(rule), book)
    assert set(by_name(found).values()) == {(Effect.BOUND,)}
    assert {one.duty for change in found.changes for _, one in change.bound} == {Duty.RECORD}


async def test_data_that_lies_where_it_must_not_any_more_is_named(book: Workbook) -> None:
    found = under(law(internal(("DE",))), book)
    assert ("radar-2026", "bucket-fi") in {(one.data_set, one.place) for one in found.rests}


async def test_a_fact_that_goes_missing_is_a_denial_that_names_the_fact(book: Workbook) -> None:
    head = permitted()
    clusters = {name: replace(c, site=replace(c.site, country=None)) for name, c in head.clusters.items()}
    change = under(replace(head, clusters=clusters), book).of(Effect.DENIED_RUNNING)[0]
    assert change.stands[0].because is not None
    assert (change.stands[0].because.because.fact, change.stands[0].because.because.gap) == (
        "destination.country",
        Gap.MISSING,
    )


# --- the commands -------------------------------------------------------------------------------------------------


def snapshot_of(bench: Bench, book: Workbook, path: Path) -> str:
    state, now = bench.state, bench.clock.now()
    taken = taken_snapshot(state.hub_view(), state.snapshot(now), state.policy.digest, now, book)
    path.write_bytes(encode_snapshot(taken))
    return str(path)


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """The example blueprint, to edit."""
    return Path(shutil.copytree(CONFIG, tmp_path / "head"))


def edit(head: Path, file: str, old: str, new: str) -> None:
    path = head / "residency" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def eea_is_germany(head: Path) -> Path:
    edit(head, "personal.yaml", 'destination.country: {in: "@eea-plus-adequate"}', "destination.country: {in: [SE]}")
    return head


def printed(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int = 0) -> str:
    assert cli(["policy", *arguments]) == code, capsys.readouterr().err
    return capsys.readouterr().out


def as_data(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, [*arguments, "-o", "json"], code))
    return found


@pytest.mark.slow
async def test_diff_tells_what_becomes_illegal_by_name_and_gates_on_it(
    bench: Bench, book: Workbook, eea_is_germany: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = snapshot_of(bench, book, tmp_path / "fleet.json")
    arguments = ["diff", str(CONFIG), str(eea_is_germany), "--state", state]
    text = printed(capsys, arguments)
    assert "becomes illegal where it runs (1)" in text
    assert "gdpr-eea-and-adequate asks for destination.country in SE (saw DE), residency/personal.yaml:14:7" in text
    assert "[drain]" in text
    assert "data lies where it must not any more" in text
    assert "newly-denied-running: 1, 32 GPU-hours, $" in text
    for gate, code in (("newly-denied-running", 1), ("newly-denied-data", 1), ("widened", 0), ("any", 1)):
        printed(capsys, [*arguments, "--fail-on", gate], code)
    data = as_data(capsys, arguments)
    assert data["totals"]["newly-denied-running"]["count"] == 1
    assert data["changes"][0]["workload"].startswith("autonomy/")
    back = ["diff", str(eea_is_germany), str(CONFIG), "--state", state]
    assert printed(capsys, [*back, "--fail-on", "widened"], 1).splitlines()[2].startswith("widens: data may go")
    assert as_data(capsys, ["diff", "in-force", str(CONFIG), "--state", state])["same"] is True


async def test_explain_tells_rule_line_clause_and_what_would_help(
    bench: Bench, book: Workbook, eea_is_germany: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = snapshot_of(bench, book, tmp_path / "fleet.json")
    text = printed(capsys, ["explain", "job/camera", "--state", state, "--cluster", "cloud-c-us"])
    assert "DENY autonomy/" in text
    assert "residency/personal.yaml:" in text
    assert "because   camera-eu (personal-eu)" in text
    assert "law       Our own rule for GDPR Chapter V" in text
    assert "data-protection-officer, 14 days at most" in text
    assert "legal now: cloud-a-fi, cloud-b-fr, onprem-eu" in text
    data = as_data(capsys, ["explain", "camera", "--state", state])
    assert {c["cluster"]: c["answer"] for c in data["clusters"]}["cloud-c-us"] == "deny"
    assert data["legal"]
    under_head = as_data(capsys, ["explain", "camera", "--state", state, "--rules", str(eea_is_germany)])
    assert under_head["legal"] == []
    onprem = next(c for c in under_head["clusters"] if c["cluster"] == "onprem-eu")
    assert onprem["stands"] is True
    assert any("destination.country in SE" in one["otherwise"] for one in onprem["would_be_legal_if"])
    for arguments, code in ((["explain", "nobody"], 3), (["explain", "camera", "--cluster", "mars"], 3)):
        assert cli(["policy", *arguments, "--state", state]) == code


def test_what_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    for arguments in (
        ["diff", str(CONFIG), "nowhere"],
        ["diff", str(CONFIG), "no-such-revision:config"],
        ["diff", "in-force", str(CONFIG)],
        ["diff", str(CONFIG), str(CONFIG), "--state", str(tmp_path / "x.json")],
        ["diff", str(CONFIG), str(CONFIG), "--state", str(tmp_path / "missing.json")],
        ["diff", str(CONFIG), str(CONFIG), "--state", "x", "--from-daemon"],
    ):
        assert cli(["policy", *arguments]) == 2, arguments
        assert "fix:" in capsys.readouterr().err


async def test_a_snapshot_without_work_says_so_and_a_work_file_comes_back(bench: Bench, book: Workbook) -> None:
    state, now = bench.state, bench.clock.now()
    with pytest.raises(CodecError, match="holds no work"):
        decode_workbook(encode_snapshot(taken_snapshot(state.hub_view(), state.snapshot(now), "p", now)))
    content = encode_workbook(book)
    assert encode_workbook(decode_workbook(content)) == content
    assert decode_workbook(content).work == book.work
