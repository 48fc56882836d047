"""Five hundred jobs at once on real clusters: none of them is ever nominated beyond what fits and may look ahead.

MultiKueue places about two jobs a second, whoever nominates. In `make test` the crowd is therefore watched for some
minutes: clusters are filled to their bounds, hundreds wait behind, and whatever was nominated or finished is judged.
`make test-long` goes on until all five hundred have finished.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import LocalFleet
from tests.local import laws
from tests.local.daemon import daemon
from tests.local.fleet_objects import CONFIG, example_fleet
from tests.local.observer import HUB, Observer, WorkloadSeen
from tests.loops.jobs import B200, H100, H200, L40S, RTX, gang

pytestmark = [pytest.mark.local, pytest.mark.timeout(1500)]
MIX = (
    *(("autonomy", H100, 1, "training"),) * 4,
    ("autonomy", H100, 2, "training"),
    ("autonomy", H100, 1, "reinforcement-learning"),
    *(("autonomy", H200, 1, "training"),) * 3,
    *(("autonomy", B200, 1, "training"),) * 2,
    *(("simulation", RTX, 1, "simulation"),) * 4,
    ("simulation", RTX, 2, "reinforcement-learning"),
    ("simulation", L40S, 1, "simulation"),
    *(("flywheel", L40S, 1, "data-processing"),) * 2,
)
"""Namespace, GPU product, GPUs and class, in rough proportion to what the fleet has. No two queues of different
priority meet on one product, so that nothing makes room by a preemption and the bound is the plain sum; and no class is
less patient than MultiKueue takes for what stands before it, so that no second cluster is added."""
COUNT = 500
WHOLE = os.environ.get("ENTREPOT_LONG") == "1"
PATIENCE_S = 1400.0 if WHOLE else 150.0
ENOUGH = COUNT if WHOLE else 120
"""How many nominations must have been judged."""


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    """A fleet that may be left with a backlog: taking five hundred jobs back would take as long as placing them."""
    hub_objects, clusters = example_fleet()
    with LocalFleet.start(tmp_path / "fleet", hub_objects, clusters) as fleet:
        yield fleet


def crowd() -> list[dict[str, Any]]:
    found = []
    for number in range(COUNT):
        namespace, product, gpus, workload_class = MIX[number % len(MIX)]
        manifest = gang(f"crowd-{number:03d}", gpus=gpus, product=product, namespace=namespace)
        manifest["metadata"]["labels"]["entrepot.dev/workload-class"] = workload_class
        manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
        found.append(manifest)
    return found


def submit(fleet: LocalFleet, manifests: list[dict[str, Any]], side_by_side: int = 8) -> None:
    """As fast as the hub takes them."""

    def some(part: list[dict[str, Any]]) -> None:
        with fleet.hub.api() as api:
            for manifest in part:
                api.request("POST", f"/apis/batch/v1/namespaces/{manifest['metadata']['namespace']}/jobs", manifest)

    with ThreadPoolExecutor(side_by_side) as pool:
        list(pool.map(some, [manifests[start::side_by_side] for start in range(side_by_side)]))


def test_five_hundred_jobs_at_once_are_never_nominated_beyond_fit_and_look_ahead(
    own_fleet: LocalFleet, tmp_path: Path
) -> None:
    manifests = crowd()
    classes = {m["metadata"]["name"]: m["metadata"]["labels"]["entrepot.dev/workload-class"] for m in manifests}
    keys = {(m["metadata"]["namespace"], m["metadata"]["name"]) for m in manifests}
    offer = laws.room(own_fleet)
    with Observer(own_fleet) as observer, daemon(own_fleet, tmp_path / "daemon") as running:
        started = time.monotonic()
        submit(own_fleet, manifests)
        submitted_s = time.monotonic() - started

        def done() -> bool:
            time.sleep(1.0)
            return keys <= _finished(observer)

        in_time = _within(done, PATIENCE_S)
        took_s = time.monotonic() - started
        observer.settle(quiet_s=0.5, within_s=3.0)
        changes, ended = observer.changes(), keys & _finished(observer)
        said = running.log()[-3000:]
    filling = laws.beyond_fit(changes, offer, laws.look_ahead(CONFIG), classes)
    full = {f"{at[0]} {at[1]}": f"{gpus}/{offer.at(at)}" for at, gpus in sorted(filling.fullest.items())}
    print(f"\n{COUNT} jobs created in {submitted_s:.0f} s; {filling.judged} nominations judged", file=sys.stderr)
    print(f"watched for {took_s:.0f} s; {len(ended)} finished; fullest: {full}", file=sys.stderr)
    assert filling.breaches == []
    assert any(n >= offer.at(place) for place, n in filling.fullest.items()), "the crowd never filled a cluster"
    assert laws.doubled(changes) == []
    assert laws.changed_in_flight(changes) == []
    runs = laws.runs(changes)
    for counts in (runs.copies, runs.jobs, runs.pods):
        assert {key: count for key, count in counts.items() if count > 1} == {}
    assert {key: runs.pods.get(key) for key in ended if runs.pods.get(key) != 1} == {}
    assert filling.judged >= ENOUGH, f"only {filling.judged} were nominated within {PATIENCE_S:.0f} s: {said}"
    assert in_time or not WHOLE, f"not all had finished within {PATIENCE_S:.0f} s: {said}"


def _within(done: Callable[[], bool], within_s: float) -> bool:
    """The laws are judged on what there is, even when a slow machine does not get to the end."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if done():
            return True
    return False


def _finished(observer: Observer) -> set[tuple[str, str]]:
    found = observer.newest(HUB, "workloads")
    return {(c.key[0], c.seen.job) for c in found if isinstance(c.seen, WorkloadSeen) and c.seen.finished}
