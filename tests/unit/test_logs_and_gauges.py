"""What alerts stand on: every warning and error is counted, and what was never seen grows old."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from dispatcher.app.daemon import Daemon, Surroundings
from dispatcher.core.snapshot import HubView
from dispatcher.logs import OTHER, PROBLEMS, configure, count_problems, get_logger
from dispatcher.loops.gauges import GaugeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from tests.stores import new_store
from tests.unit.api_world import World, worker
from tests.unit.records import NOW, decision


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    found = Metrics()
    count_problems(lambda kind: found.problems.labels(kind).inc())
    yield found
    count_problems(lambda kind: None)
    structlog.reset_defaults()


def counted(metrics: Metrics, kind: str) -> float | None:
    return metrics.registry.get_sample_value("entrepot_problems_total", {"kind": kind})


@pytest.mark.parametrize(("level", "shown"), [("debug", 2), ("info", 2), ("warning", 2), ("error", 1)])
def test_a_problem_is_counted_however_quiet_the_log_is(
    metrics: Metrics, capsys: pytest.CaptureFixture[str], level: str, shown: int
) -> None:
    configure(level)
    get_logger().warning("store_went_back", cluster="w1")
    get_logger().error("store_away", token="hidden")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["store_went_back", "store_away"][2 - shown :]
    assert lines[-1]["token"] == "[redacted]"
    assert (counted(metrics, "store_went_back"), counted(metrics, "store_away")) == (1, 1)


def test_information_is_no_problem_and_an_unlisted_event_is_counted_as_other(metrics: Metrics) -> None:
    configure("info")
    get_logger().info("store_away")
    get_logger().warning("something_new")
    assert (counted(metrics, "store_away"), counted(metrics, OTHER), counted(metrics, "something_new")) == (0, 1, None)


def test_every_kind_is_there_at_zero_so_that_a_first_problem_is_an_increase(metrics: Metrics) -> None:
    assert [kind for kind in (*PROBLEMS, OTHER) if counted(metrics, kind) != 0] == []


def test_what_was_never_seen_is_as_old_as_the_daemon() -> None:
    world = World()
    world.hub.shown = HubView(synced=False, observed_at=None)
    world.show_worker(worker("cloud-us", seen_s=None))
    metrics = Metrics()
    loop = GaugeLoop(world.state, metrics, Health(world.clock))
    loop.look()
    assert metrics.registry.get_sample_value("entrepot_hub_age_seconds") == 0
    world.clock.at = NOW + timedelta(seconds=200)
    loop.look()
    assert metrics.registry.get_sample_value("entrepot_hub_age_seconds") == 200, "EntrepotHubSilent asks for 90"
    assert metrics.registry.get_sample_value("entrepot_cluster_age_seconds", {"cluster": "cloud-us"}) == 200
    assert metrics.registry.get_sample_value("entrepot_cluster_age_seconds", {"cluster": "cloud-eu"}) == 203


def test_a_cluster_that_was_taken_out_of_the_fleet_raises_no_alert_any_more() -> None:
    """It was away, which is why somebody took it out: its last word would stand until a restart."""
    world = World()
    world.show_worker(worker("cloud-us", seen_s=None))
    metrics = Metrics()
    loop = GaugeLoop(world.state, metrics, Health(world.clock))
    loop.look()
    link = {"cluster": "cloud-us", "link": "connected"}
    assert metrics.registry.get_sample_value("entrepot_cluster_link", link) == 0, "EntrepotClusterStale speaks of it"
    del world.workers["cloud-us"]
    for _ in range(2):
        loop.look()
    labelled = [s for m in metrics.registry.collect() for s in m.samples if s.labels.get("cluster") == "cloud-us"]
    assert labelled == []
    assert metrics.registry.get_sample_value("entrepot_cluster_link", {**link, "cluster": "cloud-eu"}) is not None


async def test_a_daemon_alone_leads_and_says_how_much_it_keeps_for_replay(tmp_path: Path) -> None:
    """Or the alert on the sum of leaders would speak of every single daemon."""
    world, store = World(), await new_store(tmp_path / "store.db")
    around = Surroundings(world.hub, lambda cluster: world.workers[cluster.name], world.clock, source=None)  # type: ignore[arg-type]
    daemon = Daemon(around, world.state.policy, store, None)
    await daemon._measure()
    await store.close()
    value = daemon.metrics.registry.get_sample_value
    assert value("entrepot_leading") == 1
    assert value("entrepot_replay_bytes") == 0
    assert value("entrepot_replay_limit_bytes") == 512 * 2**20


async def test_nothing_is_forgotten_while_nobody_can_see_what_lives(tmp_path: Path) -> None:
    """A long job's newest decision stays however old it is: an unseen hub must not make it look gone."""
    world, store = World(), await new_store(tmp_path / "store.db")
    await store.commit(decision(1, at=NOW - timedelta(days=40)), None, None)
    around = Surroundings(world.hub, lambda cluster: world.workers[cluster.name], world.clock, source=None)  # type: ignore[arg-type]
    daemon = Daemon(around, world.state.policy, store, None)
    for unseen in (HubView(synced=False, observed_at=None), HubView(synced=True, observed_at=NOW - timedelta(days=1))):
        world.hub.shown = unseen
        await daemon._prune()
        assert len(await store.recent()) == 1
    world.hub.shown = HubView(synced=True, observed_at=NOW)
    await daemon._prune()
    assert len(await store.recent()) == 0, "its workload is seen to be gone"
    await store.close()
