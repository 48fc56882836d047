"""What a daemon decided on real clusters replays to the same bytes: live, after a kill -9, and from its store alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.cli.main import run
from tests.fleet import LocalFleet
from tests.local.daemon import Hub, Running, daemon, launch, wait_for
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import B200, H100, gang, rollouts_and_learner

pytestmark = pytest.mark.local
NAMES = [f"replay-{number}" for number in range(6)]


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = run([*arguments, "-o", "json"])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    answer: dict[str, Any] = json.loads(out)
    return answer


def replay_all(capsys: pytest.CaptureFixture[str], running: Running, *where: str) -> list[str]:
    """Verdicts of all decisions that the daemon's store has."""
    ids = [item["id"] for item in running.get("/v1/decisions?limit=1000")["items"]]
    return [asked(capsys, "replay", decision, *where)["verdict"] for decision in ids]


def test_decisions_on_real_clusters_replay_to_the_same_bytes(
    local_fleet: LocalFleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub(local_fleet)
    with daemon(local_fleet, tmp_path) as running:
        for number, name in enumerate(NAMES):
            hub.create(gang(name, pods=1 + number % 2, product=(H100, B200)[number % 2]))
        hub.create(rollouts_and_learner("replay-rollouts"))
        hub.create(gang("replay-too-large", pods=64))
        wait_for(
            lambda: hub.finished("autonomy", NAMES) and hub.finished("simulation", ["replay-rollouts"]),
            120,
            lambda: running.log()[-2000:],
        )
        verdicts = replay_all(capsys, running, "--server", running.server)
        assert len(verdicts) >= len(NAMES) + 2
        assert set(verdicts) == {"same"}
        running.kill()
    again = launch(local_fleet, tmp_path)
    try:
        assert replay_all(capsys, again, "--store", str(tmp_path / "entrepot.db")) == verdicts

        snapshot = tmp_path / "fleet.json"
        assert run(["snapshot", "-o", str(snapshot), "--server", again.server]) == 0
        text = snapshot.read_text()
        assert "BEGIN CERTIFICATE" not in text
        assert "client-key" not in text
        capsys.readouterr()
        job = tmp_path / "job.yaml"
        job.write_text(yaml.safe_dump(gang("replay-later")))
        files = ("--snapshot", str(snapshot), "--request", str(job), "--blueprint", str(CONFIG))
        offline = asked(capsys, "decide", *files)
        hub.create(gang("replay-later"))
        wait_for(lambda: hub.finished("autonomy", ["replay-later"]), 60, lambda: again.log()[-2000:])
        assert offline["chosen"] == again.get("/v1/why/autonomy/replay-later")["decision"]["chosen"]
    finally:
        again.stop()
        hub.delete(gang("replay-too-large", pods=64))
