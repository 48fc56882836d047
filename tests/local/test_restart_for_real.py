"""A daemon of the test's own on real clusters: killed in the middle of a batch, and given a broken blueprint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fleet import LocalFleet
from tests.local.daemon import Hub, daemon, decided, launch, run, wait_for
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import B200, H100, H200, gang

pytestmark = pytest.mark.local


@pytest.fixture
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


def test_a_broken_edit_of_the_blueprint_keeps_the_last_good_one_in_force(
    hub: Hub, local_fleet: LocalFleet, tmp_path: Path
) -> None:
    folder = tmp_path / "blueprint"
    shutil.copytree(CONFIG, folder)
    with daemon(local_fleet, tmp_path / "daemon", folder) as own:
        before = own.get("/v1/blueprint")
        good = (folder / "fleet.yaml").read_text()
        (folder / "fleet.yaml").write_text(good.replace("provider: northgrid", "providr: northgrid"))
        wait_for(lambda: not own.get("/v1/blueprint")["ok"], 15)
        broken = own.get("/v1/blueprint")
        assert broken["digest"] == before["digest"]
        assert any(e.startswith("fleet.yaml:") and "providr" in e for e in broken["errors"])
        run(hub, own, [gang("real-broken-edit")], 60)
        (folder / "fleet.yaml").write_text(good.replace("stranded_permille: 100", "stranded_permille: 50"))
        wait_for(lambda: own.get("/v1/blueprint")["ok"], 15)
        assert own.get("/v1/blueprint")["digest"] != before["digest"]


def test_a_kill_in_the_middle_of_a_batch_loses_and_doubles_nothing(
    hub: Hub, local_fleet: LocalFleet, tmp_path: Path
) -> None:
    manifests = [gang(f"real-kill-{n:02d}", gpus=2, product=(H100, H200, B200)[n % 3]) for n in range(24)]
    first = launch(local_fleet, tmp_path / "daemon")
    try:
        for manifest in manifests[:12]:
            hub.create(manifest)
        wait_for(lambda: len(first.get("/v1/decisions?limit=200")["items"]) >= 4, 60, lambda: first.log()[-2000:])
    finally:
        first.kill()
    for manifest in manifests[12:]:
        hub.create(manifest)
    second = launch(local_fleet, tmp_path / "daemon")
    try:
        names = [m["metadata"]["name"] for m in manifests]
        seen: dict[str, set[str]] = {}

        def done() -> bool:
            for name, clusters in hub.copies("autonomy").items():
                seen.setdefault(name, set()).update(clusters)
            return hub.finished("autonomy", names)

        wait_for(done, 180, lambda: second.log()[-2000:])
        killed = {name: clusters for name, clusters in seen.items() if "real-kill" in name}
        assert {name: sorted(clusters) for name, clusters in killed.items() if len(clusters) != 1} == {}
        for name in names:
            assert decided(second, "autonomy", name)["decision"]["attempt"] == 1
    finally:
        second.stop()
