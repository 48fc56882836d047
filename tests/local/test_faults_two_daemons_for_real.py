"""Two daemons by mistake, each believing itself alone, on one real hub: one copy of each job all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.builders import Manifest
from tests.fleet import LocalFleet
from tests.local.daemon import Hub, daemon, launch, wait_for
from tests.local.faulty import NAMESPACE, made_once, tries
from tests.loops.jobs import B200, H100, H200, gang

pytestmark = pytest.mark.local
JOBS = 6


def batch(prefix: str) -> list[Manifest]:
    return [gang(f"{prefix}-{n:02d}", gpus=1, product=(H100, H200, B200)[n % 3], duration="1s") for n in range(JOBS)]


def finish(fleet: LocalFleet, jobs: list[Manifest]) -> tuple[dict[str, set[str]], list[str]]:
    """Submit, wait for all; where copies were ever seen, and the Workloads' names."""
    hub, seen = Hub(fleet), dict[str, set[str]]()
    names = [m["metadata"]["name"] for m in jobs]
    for manifest in jobs:
        hub.create(manifest)

    def done() -> bool:
        for name, clusters in hub.copies(NAMESPACE).items():
            seen.setdefault(name, set()).update(clusters)
        return hub.finished(NAMESPACE, names)

    wait_for(done, 120)
    workloads = [hub.workloads(NAMESPACE)[name]["metadata"]["name"] for name in names]
    return seen, workloads


def test_two_daemons_with_stores_of_their_own_write_each_nomination_once(
    local_fleet: LocalFleet, tmp_path: Path
) -> None:
    with daemon(local_fleet, tmp_path / "one"), daemon(local_fleet, tmp_path / "two"):
        seen, workloads = finish(local_fleet, batch("twins"))
    assert {name: seen[name] for name in workloads if len(seen.get(name, ())) > 1} == {}
    assert made_once(local_fleet, workloads) == {}
    lost = sum(code == 409 for codes in tries(local_fleet, workloads).values() for code in codes)
    print(f"\n{lost} writes of the other came too late and were refused", file=sys.stderr)


def test_of_two_daemons_on_one_store_the_older_ends_and_says_what_to_do(
    local_fleet: LocalFleet, tmp_path: Path
) -> None:
    older = launch(local_fleet, tmp_path / "same")
    newer = launch(local_fleet, tmp_path / "same")
    try:
        seen, workloads = finish(local_fleet, batch("same-store"))
        assert {name: seen[name] for name in workloads if len(seen.get(name, ())) > 1} == {}
        assert made_once(local_fleet, workloads) == {}
        wait_for(lambda: older.process.poll() is not None, 20, lambda: older.log()[-2000:])
        assert older.process.returncode != 0
        assert newer.process.poll() is None
        assert "another daemon works on the same store" in older.log()
        assert "--ha" in older.log()
    finally:
        older.stop()
        newer.stop()
