"""`snapshot`, `decide` and `replay` from a terminal: against a served API, a store file, and files alone."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.cli.main import run
from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision
from dispatcher.core.ids import DecisionId
from dispatcher.core.replay import Inputs, Record
from dispatcher.store import SqlStore, open_store
from dispatcher.store.documents import (
    encode_record,
    encode_request,
    encode_snapshot,
    replayed_digest,
    taken_snapshot,
)
from dispatcher.web.api import build_api
from tests.core_builders import NOW, policy, request, snapshot, worker
from tests.loops.bench import CONFIG, start
from tests.loops.jobs import gang, rollouts_and_learner
from tests.stores import new_store
from tests.unit.api_world import World, served

SEEN = Inputs(request("train"), snapshot(worker("cloud"), worker("onprem")), policy(), NOW)
DECIDED = decide(SEEN.request, SEEN.snapshot, SEEN.policy, SEEN.now)
FORGOTTEN = decide(replace(SEEN.request, attempt=2), SEEN.snapshot, SEEN.policy, SEEN.now)
CHANGED = decide(replace(SEEN.request, attempt=3), SEEN.snapshot, SEEN.policy, SEEN.now)


class FileStore(SqlStore):
    """Opens the file anew for each call: the server's loop runs in another thread than the test's."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def record(self, decision: DecisionId) -> Record | None:
        store = await open_store(self._file)
        try:
            return await store.record(decision)
        finally:
            await store.close()

    async def decision(self, decision: DecisionId) -> Decision | None:
        store = await open_store(self._file)
        try:
            return await store.decision(decision)
        finally:
            await store.close()

    async def decisions_of(self, workload_key: str, limit: int = 20) -> Sequence[Decision]:
        return ()

    async def ids_like(self, start: str, limit: int = 10) -> Sequence[DecisionId]:
        store = await open_store(self._file)
        try:
            return await store.ids_like(start, limit)
        finally:
            await store.close()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a decision that can be replayed, one without inputs, and one whose record somebody changed."""
    file = tmp_path_factory.mktemp("replay") / "store.db"

    async def write() -> None:
        store = await new_store(file)
        await store.commit(DECIDED, None, None, SEEN)
        await store.commit(FORGOTTEN, None, None)
        await store.commit(CHANGED, None, None, replace(SEEN, request=replace(SEEN.request, attempt=3)))
        await store.close()

    asyncio.run(write())
    raw = sqlite3.connect(file)
    (document,) = raw.execute("SELECT document FROM decisions WHERE id = ?", (CHANGED.id,)).fetchone()
    document = document.replace(b'"chosen":"%s"' % str(CHANGED.chosen).encode(), b'"chosen":"elsewhere"')
    raw.execute("UPDATE decisions SET document = ? WHERE id = ?", (document, CHANGED.id))
    raw.commit()
    raw.close()
    return file


@pytest.fixture(scope="module")
def server(records: Path) -> Iterator[str]:
    world = World()
    with served(build_api(world.state, FileStore(records), world.vitals)) as url:
        yield url


@dataclass
class Cli:
    server: str
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, code: int = 0, server: bool = True) -> str:
        where = ("--server", self.server) if server else ()
        found = run([*arguments, *where])
        out, self.err = self.capsys.readouterr()
        assert found == code, f"{found}: {out}{self.err}"
        return out


@pytest.fixture
def cli(server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in ("ENTREPOT_STORE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return Cli(server, capsys)


# --- replay ------------------------------------------------------------------------------------------------------


def test_a_decision_is_replayed_from_the_daemon_and_from_its_store(cli: Cli, records: Path) -> None:
    told = cli("replay", DECIDED.id)
    assert told.startswith("same: the same inputs give the same bytes\n")
    assert told.count(replayed_digest(DECIDED)) == 2
    assert cli("replay", DECIDED.id, "--store", str(records), server=False) == told


def test_a_decision_is_replayed_by_the_beginning_of_its_id(cli: Cli, records: Path) -> None:
    start = DECIDED.id[:8]
    told = cli("replay", start)
    assert f"decision {DECIDED.id} on " in told
    assert cli("replay", start, "--store", str(records), server=False) == told
    cli("replay", "0000", code=3)
    assert "no decision 0000" in cli.err
    cli("replay", "0000", "--store", str(records), code=3, server=False)
    assert "no decision 0000" in cli.err
    for where in ((), ("--store", str(records))):
        cli("replay", start[:3], *where, code=2, server=not where)
        assert f"'{start[:3]}' is too short for the beginning of an id: at least 4 letters of it are needed" in cli.err
        assert "write more of the id" in cli.err


def test_a_record_file_is_replayed_without_daemon_and_store(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(encode_record(Record(DECIDED, replayed_digest(DECIDED), SEEN)))
    assert cli("replay", str(file), server=False).startswith("same:")


def test_a_difference_ends_with_its_own_code_and_names_its_place(cli: Cli) -> None:
    told = cli("replay", CHANGED.id, code=7)
    assert told.startswith("differs: the same inputs give another decision\n")
    (line,) = [line for line in told.splitlines() if line.startswith("chosen")]
    assert line.split() == ["chosen", "changed", "elsewhere", str(CHANGED.chosen)]
    answer = json.loads(cli("replay", CHANGED.id, "-o", "json", code=7))
    assert answer["verdict"] == "differs"
    assert answer["differences"] == [
        {"path": "chosen", "change": "changed", "recorded": "elsewhere", "replayed": CHANGED.chosen}
    ]


def test_another_version_is_reported_and_is_no_difference(cli: Cli, tmp_path: Path) -> None:
    older = replace(DECIDED, code_version="core-0")
    file = tmp_path / "record.json"
    file.write_bytes(encode_record(Record(older, replayed_digest(older), SEEN)))
    answer = json.loads(cli("replay", str(file), "-o", "json", server=False))
    assert (answer["verdict"], answer["recorded_version"]) == ("same-answer", "core-0")
    assert cli("replay", str(file), server=False).startswith("same answer: another version")


@pytest.mark.parametrize("from_store", [True, False], ids=["from the store", "from the daemon"])
@pytest.mark.parametrize(
    ("decision", "told"),
    [
        pytest.param(FORGOTTEN.id, f"the inputs of decision {FORGOTTEN.id} are not kept", id="inputs are gone"),
        pytest.param("0123456789abcdef", "no decision 0123456789abcdef", id="no such decision"),
    ],
)
def test_what_cannot_be_replayed_says_why(cli: Cli, records: Path, decision: str, told: str, from_store: bool) -> None:
    where = ("--store", str(records)) if from_store else ()
    assert cli("replay", decision, *where, code=3, server=not from_store) == ""
    assert told in cli.err


def test_a_daemon_that_is_down_is_another_code(cli: Cli) -> None:
    cli("replay", DECIDED.id, "--server", "http://127.0.0.1:9", code=4, server=False)
    assert "cannot be reached" in cli.err


def test_a_file_that_is_no_record_is_refused(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    cli("replay", str(file), code=2, server=False)
    file.write_text("{}")
    cli("replay", str(file), code=1, server=False)
    assert "names no format" in cli.err


# --- snapshot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda text: "[" * 100_000, "not JSON: maximum recursion depth", id="nested for ever"),
        pytest.param(lambda text: text.replace('"DE"', '"\\ud800"'), "not JSON: 'utf-8' codec", id="half a letter"),
        pytest.param(
            lambda text: json.dumps(_without_classes(json.loads(text))),
            "cannot be decided again: it names 'training', which is not in it",
            id="a part that another names is missing",
        ),
    ],
)
def test_a_record_that_somebody_has_edited_is_told_and_is_no_crash(
    cli: Cli, tmp_path: Path, change: Callable[[str], str], told: str
) -> None:
    file = tmp_path / "edited.json"
    file.write_text(change(encode_record(Record(DECIDED, replayed_digest(DECIDED), SEEN)).decode()))
    cli("replay", str(file), code=1, server=False)
    assert told in cli.err


def _without_classes(record: dict[str, Any]) -> dict[str, Any]:
    record["inputs"]["policy"]["classes"] = []
    return record


def test_a_snapshot_is_canonical_and_holds_no_secret(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    assert cli("snapshot", "-o", str(file)) == ""
    assert "bytes, taken at 2026-03-02T09:30:00+00:00 under policy cccccccccccccccc" in cli.err
    assert cli("snapshot") == file.read_text()
    found = json.loads(file.read_text())
    assert found["format"] == "entrepot.dev/snapshot"
    assert file.read_text() == json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    assert [cluster["name"] for cluster in found["snapshot"]["clusters"]] == ["cloud-eu", "cloud-us", "onprem-1"]
    assert "workloads" not in found["hub"]


def test_a_snapshot_that_cannot_be_written_says_so(cli: Cli, tmp_path: Path) -> None:
    cli("snapshot", "-o", str(tmp_path / "no" / "folder"), code=1)
    assert "cannot be written" in cli.err


# --- decide ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offline:
    """A snapshot of the example fleet, taken right before the daemon decided on `jobs`, and what it decided then."""

    snapshot: Path
    decisions: dict[str, Decision]
    record: Path


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Offline:
    folder = tmp_path_factory.mktemp("offline")

    async def live() -> Offline:
        bench = await start(folder)
        await bench.step()
        bench.fleet.submit(gang("train", pods=2))
        bench.fleet.submit(rollouts_and_learner("rollouts"))
        bench.clock.advance(1.0)
        bench.fleet.advance()
        state, now = bench.state, bench.clock.now()
        taken = taken_snapshot(state.hub_view(), state.snapshot(now), state.policy.digest, now)
        (folder / "fleet.json").write_bytes(encode_snapshot(taken))
        await bench.dispatch.cycle()
        made = {job: bench.decision(job) for job in ("train", "rollouts")}
        record = await bench.store.record(made["train"].id)
        assert record is not None
        (folder / "record.json").write_bytes(encode_record(record))
        await bench.store.close()
        return Offline(folder / "fleet.json", made, folder / "record.json")

    return asyncio.run(live())


def ask(cli: Cli, offline: Offline, request_file: Path, *more: str, code: int = 0) -> dict[str, Any]:
    files = ("--snapshot", str(offline.snapshot), "--request", str(request_file), "--blueprint", str(CONFIG))
    out = cli("decide", *files, "-o", "json", *more, code=code, server=False)
    return json.loads(out) if out else {}


@pytest.mark.parametrize("job", ["train", "rollouts"])
def test_a_manifest_is_decided_offline_as_the_daemon_decides_it(
    cli: Cli, offline: Offline, tmp_path: Path, job: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(gang("train", pods=2) if job == "train" else rollouts_and_learner("rollouts")))
    answer, decided = ask(cli, offline, file), offline.decisions[job]
    assert answer["chosen"] == decided.chosen
    assert answer["job"] == {"kind": decided.job_kind, "name": job}
    by_cluster = {candidate["cluster"]: candidate for candidate in answer["candidates"]}
    for candidate in decided.candidates:
        shown = by_cluster[candidate.cluster]
        assert shown["fit"] == candidate.fit
        assert [r["reason"] for r in shown["rejections"]] == [r.reason for r in candidate.rejections]
        runs = {t["kind"]: t["amount"]["usd_micro"] for t in shown["terms"]}
        assert runs["run"] == next(t.amount_usd_micro for t in candidate.terms if t.kind == "run")


def test_the_same_files_give_the_same_bytes(cli: Cli, offline: Offline, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(gang("train", pods=2)))
    assert ask(cli, offline, file) == ask(cli, offline, file)


def test_a_record_and_a_stored_request_are_requests_too(cli: Cli, offline: Offline, tmp_path: Path) -> None:
    decided = offline.decisions["train"]
    answer = ask(cli, offline, offline.record, "--now", decided.decided_at.isoformat())
    assert (answer["uid"], answer["chosen"]) == (decided.workload, decided.chosen)
    file = tmp_path / "request.json"
    file.write_bytes(encode_request(replace(SEEN.request, hub_queue="autonomy-training")))  # type: ignore[arg-type]
    assert ask(cli, offline, file)["name"] == "train"


def test_the_decision_is_shown_as_a_page_too_and_time_is_an_argument(cli: Cli, offline: Offline) -> None:
    files = ("--snapshot", str(offline.snapshot), "--request", str(offline.record), "--blueprint", str(CONFIG))
    page = cli("decide", *files, server=False)
    assert page.startswith("autonomy/train  Job, Workload job-train-")
    later = json.loads(cli("decide", *files, "--now", "2026-09-01T00:00:00Z", "-o", "json", server=False))
    assert later["decided_at"].startswith("2026-09-01T00:00:00")


def without_a_queue() -> Any:
    job = gang("x")
    del job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    return job


def in_a_strange_namespace() -> Any:
    return {**gang("x"), "metadata": {**gang("x")["metadata"], "namespace": "nowhere"}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("a: [", "cannot be read", id="no YAML"),
        pytest.param("{", "cannot be read", id="no JSON"),
        pytest.param("kind: Job\n---\nkind: Job\n", "2 documents, not one", id="two jobs"),
        pytest.param("- 1\n", "no object, but a list or a value", id="no object"),
        pytest.param("a: 1\n", "no Kubernetes object: it has no kind", id="neither manifest nor request"),
        pytest.param("kind: Pod\n", "runs Job and JobSet only", id="another kind"),
        pytest.param(yaml.safe_dump(without_a_queue()), "queue-name", id="a job that Kueue does not see"),
        pytest.param(yaml.safe_dump(in_a_strange_namespace()), "'nowhere' not found", id="a namespace of nobody"),
        pytest.param(
            yaml.safe_dump(gang("x", says={"expected-duration": "soon"})),
            "entrepot.dev/expected-duration",
            id="a key that does not parse",
        ),
    ],
)
def test_a_request_that_cannot_be_decided_says_why(
    cli: Cli, offline: Offline, tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "request"
    file.write_text(text)
    ask(cli, offline, file, code=2)
    assert told in cli.err


def test_files_and_times_that_are_wrong_say_so(cli: Cli, offline: Offline, tmp_path: Path) -> None:
    ask(cli, offline, offline.record, "--now", "tomorrow", code=2)
    assert "'tomorrow' is not a time" in cli.err
    ask(cli, offline, offline.record, "--now", "2026-03-01T12:00:00", code=2)
    assert "no time zone" in cli.err
    swapped = ("--snapshot", str(offline.record), "--request", str(offline.record), "--blueprint", str(CONFIG))
    cli("decide", *swapped, code=2, server=False)
    assert "format is 'entrepot.dev/record', not 'entrepot.dev/snapshot'" in cli.err
    files = ("--snapshot", str(offline.snapshot), "--request", str(offline.record), "--blueprint", str(tmp_path))
    cli("decide", *files, code=5, server=False)
    ask(cli, offline, tmp_path / "absent", code=2)
    assert "cannot be read" in cli.err


def test_another_policy_than_that_of_the_snapshot_is_said(cli: Cli, offline: Offline, tmp_path: Path) -> None:
    taken = json.loads(offline.snapshot.read_text())
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({**taken, "policy_digest": "other"}))
    ask(cli, replace(offline, snapshot=file), offline.record)
    assert "note: the snapshot was taken under policy other; this decides under" in cli.err
