"""A crowd of five hundred on the embedded fleet: no cluster is ever nominated beyond its fit and its look-ahead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dispatcher.core.decision import Outcome
from dispatcher.core.order import OrderRules
from dispatcher.core.waiting import Phase
from tests.local import laws
from tests.loops.bench import CONFIG, Bench, example, start
from tests.loops.history import History, example_room
from tests.loops.jobs import RTX, gang

CROWD = 500
CLASS = "simulation"


def crowd(count: int = CROWD, duration: str = "8s") -> dict[str, dict[str, Any]]:
    names = [f"roll-{n:03d}" for n in range(count)]
    return {
        name: gang(name, gpus=(1, 2, 1, 4)[n % 4], product=RTX, duration=duration, namespace="simulation")
        for n, name in enumerate(names)
    }


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = await start(tmp_path)
    yield found
    await found.store.close()


def nominated_ahead(bench: Bench) -> dict[tuple[str, str], int]:
    """Workloads by cluster and class that stand nominated and have no quota there, as the hub and the workers show."""
    found: dict[tuple[str, str], int] = {}
    views = bench.state.worker_views()
    for workload in bench.state.hub_view().workloads.values():
        decision = bench.state.latest.get(workload.uid)
        if decision is None or decision.ahead is None or workload.cluster_name is not None:
            continue
        for name in workload.nominated:
            copy = views[name].copies.get((workload.namespace, workload.name))
            if copy is None or copy.quota_reserved_at is None:
                key = (str(name), decision.workload_class)
                found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.slow
async def test_five_hundred_at_once_are_never_nominated_beyond_fit_and_look_ahead(bench: Bench) -> None:
    manifests, offer = crowd(), example_room()
    history, most = History(bench, manifests), 0
    for manifest in manifests.values():
        bench.fleet.submit(manifest)
    for _ in range(60):
        bench.clock.advance(1.0)
        bench.fleet.advance()
        history.look()
        await bench.dispatch.cycle()
        history.look()
        ahead = nominated_ahead(bench)
        assert all(count <= 1 for count in ahead.values()), ahead
        most = max(most, sum(ahead.values()))
    filling = laws.beyond_fit(history.changes, offer, laws.look_ahead(CONFIG), dict.fromkeys(manifests, CLASS))
    assert filling.breaches == []
    assert filling.judged > 50
    assert most > 0, "nobody was ever nominated ahead"
    assert laws.changed_in_flight(history.changes) == []


@pytest.mark.slow
async def test_the_next_one_stands_ready_when_a_gpu_becomes_free(bench: Bench) -> None:
    """What look-ahead is for: with it more jobs have ended after the same time."""
    policy, _ = example()
    ended = []
    for look_ahead in (1, 0):
        classes = {name: replace(plan, look_ahead=look_ahead) for name, plan in policy.classes.items()}
        bench.state.policy = replace(policy, classes=classes)
        names = crowd(60, "2s")
        for name, manifest in names.items():
            manifest["metadata"]["name"] = f"{name}-{look_ahead}"
            bench.fleet.submit(manifest)
        seconds = await bench.until(bench.finished(*(f"{name}-{look_ahead}" for name in names)), within_s=400)
        ended.append(seconds)
    assert ended[0] <= ended[1]


async def test_an_urgent_late_comer_is_not_starved_by_those_ahead(bench: Bench) -> None:
    for manifest in crowd(60).values():
        bench.fleet.submit(manifest)
    await bench.until(lambda: bool(nominated_ahead(bench)), within_s=10)
    urgent = gang("urgent", gpus=1, product=RTX, namespace="simulation", priority="release-gate")
    bench.fleet.submit(urgent)
    await bench.until(lambda: bench.find("urgent") is not None)
    passed = await bench.until(lambda: bench.phase("urgent") in (Phase.PLACED, Phase.FINISHED), within_s=20)
    assert passed <= 12, "one run of those before it, and the way there"


async def test_nobody_ahead_means_nobody_is_passed(bench: Bench) -> None:
    """While a class without look-ahead waits for the room of a flavor, nobody behind it queues there."""
    policy, _ = example()
    classes = {
        name: replace(plan, look_ahead=1 if name == "evaluation" else 0) for name, plan in policy.classes.items()
    }
    first_come = OrderRules(ageing_s=0, share_weight_s=0)
    bench.state.policy = replace(policy, classes=classes, order=first_come)
    for name, manifest in crowd(60).items():
        manifest["metadata"]["labels"] = {
            **manifest["metadata"].get("labels", {}),
            "entrepot.dev/workload-class": "evaluation" if int(name[-3:]) >= 30 else CLASS,
        }
        bench.fleet.submit(manifest)
    for _ in range(6):
        await bench.step()
        first = [d for d in bench.state.latest.values() if d.workload_class == CLASS and d.outcome is Outcome.WAIT]
        assert not (first and nominated_ahead(bench))
