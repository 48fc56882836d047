"""What an edit of the rules does, seen beforehand through a daemon on real clusters: `policy diff --from-daemon`,
`policy explain` and `policy shadow` say it of work that runs and waits; nothing happens meanwhile; and when the edit
rules, it happens so. A restart on an edit that is broken goes on with the last good rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.cli.main import run as cli
from tests.fleet import LocalFleet
from tests.local.daemon import ROOT, Hub, Running, condition, decided, environment, is_ready, spawn, wait_for
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import gang

pytestmark = pytest.mark.local
PATIENCE_S = 120.0
RADAR, CAMERA = "radar-for-now", "camera-for-now"
RUNS, WAITS, QUEUED = "pol-runs", "pol-waits", "pol-queued"


def forbid(rule: str, label: str, countries: str) -> str:
    return (
        f"  {rule}:\n    labels: [{label}]\n    flows: [process, cache]\n    effect: forbid\n"
        f"    when:\n      destination.country: {{in: [{countries}]}}\n"
        "    exceptable: {approvers: [data-office], max_days: 7}\n"
        "    on_change: {running: stop_now, queued: requeue}\n"
    )


LIVE = "rules:\n" + forbid(RADAR, "internal", "FI, FR, US") + forbid(CAMERA, "personal-eu", "DE, FI, FR")
"""Radar may be used in Germany alone, and camera recordings nowhere (the pack keeps them out of the USA)."""
HEAD = "rules:\n" + forbid(RADAR, "internal", "DE, FI, FR, US") + forbid(CAMERA, "personal-eu", "FI, FR")
"""The other way round: radar nowhere, camera recordings in Germany."""


@dataclass(slots=True)
class Edit:
    """Two blueprints, the one in force and the one to come: the example with some rules more."""

    live: Path
    head: Path

    @staticmethod
    def write(folder: Path, text: str) -> None:
        half = folder / "half"
        half.write_text(text)
        half.replace(folder / "residency" / "for-now.yaml")

    def line(self, folder: Path, rule: str, below: int) -> str:
        """file:line of something some lines below the beginning of a rule."""
        lines = (folder / "residency" / "for-now.yaml").read_text().splitlines()
        return f"residency/for-now.yaml:{lines.index(f'  {rule}:') + 1 + below}"


@pytest.fixture(scope="module")
def edit(tmp_path_factory: pytest.TempPathFactory) -> Edit:
    folder = tmp_path_factory.mktemp("edit")
    found = Edit(folder / "live", folder / "head")
    for path, text in ((found.live, LIVE), (found.head, HEAD)):
        shutil.copytree(CONFIG, path)
        found.write(path, text)
    return found


@pytest.fixture(scope="module")
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


@pytest.fixture(scope="module")
def running(hub: Hub, edit: Edit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon with the edit beside it. One job runs, one waits because of the law, one for lack of room."""
    more = ("--shadow-policy", str(edit.head))
    found = spawn(hub.fleet, tmp_path_factory.mktemp("daemon"), edit.live, more=more)
    jobs = [
        gang(RUNS, duration="900s", says={"datasets": "radar-2026", "expected-duration": "PT4H"}),
        gang(WAITS, gpus=1, duration="5s", says={"datasets": "camera-eu"}),
        gang(QUEUED, pods=64, says={"datasets": "radar-2026"}),
    ]
    try:
        wait_for(lambda: is_ready(found), PATIENCE_S, lambda: found.log()[-3000:])
        for manifest in jobs:
            hub.create(manifest)
        wait_for(lambda: cluster_of(hub, RUNS) == "onprem-eu", PATIENCE_S, lambda: found.log()[-3000:])
        wait_for(
            lambda: is_decided(found, WAITS) and is_decided(found, QUEUED), PATIENCE_S, lambda: found.log()[-3000:]
        )
        yield found
    finally:
        found.stop()
        for manifest in jobs:
            hub.delete(manifest)


def cluster_of(hub: Hub, job: str) -> str:
    return str(hub.workloads("autonomy").get(job, {}).get("status", {}).get("clusterName") or "")


def is_decided(running: Running, job: str) -> bool:
    answer = httpx.get(f"{running.server}/v1/why/autonomy/{job}", timeout=10.0, trust_env=False)
    return answer.status_code == 200 and answer.json()["decision"] is not None


@pytest.fixture
def ask(running: Running, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A policy command as an operator would give it; returns what it prints."""

    def asked(*arguments: str, code: int = 0) -> str:
        found = cli(["policy", *arguments, "--server", running.server])
        out, err = capsys.readouterr()
        assert found == code, out + err
        return out

    return asked


def of_job(answer: dict[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Items by job, of the jobs here: other tests leave work on the same fleet."""
    ours = (RUNS, WAITS, QUEUED)
    return {job: item for item in answer[key] for job in ours if f"-{job}-" in item["workload"]}


def metric(running: Running, name: str, **labels: str) -> float:
    """The sum of all samples of a metric with these labels among theirs; one without any samples yet is nothing."""
    text = httpx.get(f"{running.server}/metrics", timeout=10.0, trust_env=False).text
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    assert f"# TYPE {name} " in text, f"no metric {name}"
    return sum(float(value) for said, value in found if all(f'{k}="{v}"' in said for k, v in labels.items()))


def test_diff_names_the_work_of_the_daemon_and_tells_what_widens_first(ask: Callable[..., str], edit: Edit) -> None:
    arguments = ("diff", "in-force", str(edit.head), "--from-daemon")
    changes = of_job(json.loads(ask(*arguments, "-o", "json")), "changes")
    assert {job: change["effects"] for job, change in changes.items()} == {
        RUNS: ["newly-denied-running", "narrowed"],
        WAITS: ["widened"],
        QUEUED: ["newly-denied-queued"],
    }
    runs, opened = changes[RUNS], changes[WAITS]["opened"]
    assert (runs["stage"], runs["places"], runs["course"]) == ("running", ["onprem-eu"], "stop_now")
    assert runs["gpu_seconds"] == 8 * 4 * 3600
    because = runs["where_it_is"][0]["because"]
    assert (because["rule"], because["saw"]) == (RADAR, ["DE"])
    assert because["clause_at"].startswith(f"{edit.line(edit.head, RADAR, 5)}:")
    assert [(turn["cluster"], turn["because"]["rule"]) for turn in opened] == [("onprem-eu", CAMERA)]
    text = ask(*arguments, "-o", "wide")
    titles = ("widens: data", "widens: work", "becomes illegal where it runs", "queued, and no legal cluster is left")
    at = [text.index(title) for title in titles]
    assert at == sorted(at), text
    ask(*arguments, "--fail-on", "newly-denied-running", code=1)
    ask(*arguments, "--fail-on", "obligations-added")
    same = json.loads(ask("diff", "in-force", str(edit.live), "--from-daemon", "-o", "json"))
    assert (same["same"], same["workloads"] >= 3) == (True, True)


def test_explain_names_the_line_the_clause_and_what_would_help(ask: Callable[..., str], edit: Edit) -> None:
    text = ask("explain", f"autonomy/job/{WAITS}", "--cluster", "onprem-eu")
    assert f"rule      {CAMERA}  {edit.line(edit.live, CAMERA, 0)}:" in text
    assert f"clause    destination.country in DE FI FR  {edit.line(edit.live, CAMERA, 5)}:" in text
    assert "no cluster that it may use is legal now" in text
    assert f"for an exception from {CAMERA}: data-office, 7 days at most" in text
    answer = json.loads(ask("explain", WAITS, "-o", "json"))
    onprem = next(place for place in answer["clusters"] if place["cluster"] == "onprem-eu")
    assert (answer["stage"], answer["legal"], onprem["answer"]) == ("queued", [], "deny")
    assert [(one["rule"], one["clause"]) for one in onprem["would_be_legal_if"]] == [
        (CAMERA, "destination.country in DE FI FR")
    ]
    under_head = json.loads(ask("explain", WAITS, "--rules", str(edit.head), "-o", "json"))
    assert under_head["legal"] == ["onprem-eu"], "the counterfactual is true"


def test_a_shadow_counts_its_differences_and_the_decisions_know_nothing_of_it(
    ask: Callable[..., str], edit: Edit, running: Running, hub: Hub
) -> None:
    def view() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(ask("shadow", "-o", "json"))
        return found

    wait_for(lambda: set(of_job(view(), "items")) == {RUNS, WAITS, QUEUED}, 30, view)
    seen = view()
    assert seen["candidate"] != seen["live"] == json.loads(ask("explain", RUNS, "-o", "json"))["rules"]["digest"]
    assert {job: item["effects"] for job, item in of_job(seen, "items").items()} == {
        RUNS: ["newly-denied-running", "narrowed"],
        WAITS: ["widened"],
        QUEUED: ["newly-denied-queued"],
    }
    assert f"{WAITS}" in ask("shadow")
    counted = metric(running, "entrepot_shadow_differences_total", would="newly-denied-running", rule=RADAR)
    assert counted >= 1
    for job in (RUNS, WAITS):
        assert decided(running, "autonomy", job)["decision"]["law_digest"] == seen["live"]
    Edit.write(edit.head, HEAD.replace("effect: forbid", "effect: frobid"))
    wait_for(lambda: bool(view()["errors"]), 30, view)
    broken = view()
    assert "residency/for-now.yaml:5:" in broken["errors"][0]
    assert (broken["candidate"], set(of_job(broken, "items"))) == (seen["candidate"], {RUNS, WAITS, QUEUED})
    assert metric(running, "entrepot_shadow_refused") == 1
    Edit.write(edit.head, HEAD)
    wait_for(lambda: metric(running, "entrepot_shadow_refused") == 0, 30, view)
    assert metric(running, "entrepot_shadow_failures_total") == 0
    assert metric(running, "entrepot_law_evictions_total") == 0
    assert (cluster_of(hub, RUNS), cluster_of(hub, WAITS)) == ("onprem-eu", "")
    bundles = {entry["bundle"] for entry in audit(running) if entry["kind"] == "bundle"}
    assert bundles == {seen["live"]}


def audit(running: Running) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "dispatcher.cli.main", "policy", "audit", "--store"]
    command.append(str(running.folder / "entrepot.db"))
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60)
    return [json.loads(line)["entry"] for line in done.stdout.splitlines()]


def test_what_was_foretold_happens_when_the_edit_rules(
    ask: Callable[..., str], edit: Edit, running: Running, hub: Hub
) -> None:
    Edit.write(edit.live, HEAD)
    wait_for(lambda: hub.finished("autonomy", [WAITS]), PATIENCE_S, lambda: running.log()[-2000:])

    def ended() -> bool:
        return cluster_of(hub, RUNS) == "" and not condition(hub.workloads("autonomy")[RUNS], "Evicted")

    wait_for(ended, PATIENCE_S, lambda: running.log()[-2000:])
    assert metric(running, "entrepot_law_evictions_total", result="asked") == 1
    assert decided(running, "autonomy", WAITS)["decision"]["chosen"] == "onprem-eu"
    assert json.loads(ask("diff", "in-force", str(edit.head), "--from-daemon", "-o", "json"))["same"] is True
    wait_for(lambda: not of_job(json.loads(ask("shadow", "-o", "json")), "items"), 30)


def test_a_restart_on_broken_files_goes_on_with_the_last_good_rules_and_says_so(
    edit: Edit, running: Running, hub: Hub
) -> None:
    ruled = running.get("/v1/blueprint")
    Edit.write(edit.live, HEAD.replace("effect: forbid", "effect: frobid"))
    wait_for(lambda: not running.get("/v1/blueprint")["ok"], 30)
    assert running.stop() == 0
    again = spawn(hub.fleet, running.folder, edit.live)
    job = gang("pol-after", gpus=1, duration="2s", says={"datasets": "camera-eu"})
    try:
        wait_for(lambda: is_ready(again), PATIENCE_S, lambda: again.log()[-3000:])
        wait_for(lambda: not again.get("/v1/blueprint")["ok"], 30)
        shown = again.get("/v1/blueprint")
        assert (shown["digest"], shown["law"]["digest"]) == (ruled["digest"], ruled["law"]["digest"])
        vouched = [datetime.fromisoformat(seen["law"]["confirmed_at"]) for seen in (ruled, shown)]
        assert abs(vouched[1] - vouched[0]) < timedelta(seconds=1), "a restart makes no rules younger"
        assert "residency/for-now.yaml:5:" in shown["errors"][0]
        assert metric(again, "entrepot_blueprint_refused") == 1
        hub.create(job)
        wait_for(lambda: hub.finished("autonomy", ["pol-after"]), PATIENCE_S, lambda: again.log()[-3000:])
        assert decided(again, "autonomy", "pol-after")["decision"]["law_digest"] == ruled["law"]["digest"]
        assert cluster_of(hub, RUNS) == "", "what was ended does not come back by a restart"
        Edit.write(edit.live, HEAD)
        wait_for(lambda: bool(again.get("/v1/blueprint")["ok"]), 30)
    finally:
        again.stop()
    hub.delete(job)
