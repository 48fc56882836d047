"""`limits.outstanding_nominations`: how much of a hub's work may stand in MultiKueue's own queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.core.outstanding import Outstanding
from dispatcher.core.waiting import Phase
from tests.loops.bench import Bench, example, start
from tests.loops.jobs import H100, gang

BOUND = 3


@pytest.fixture
async def bounded(tmp_path: Path) -> AsyncIterator[Bench]:
    policy, _ = example()
    limits = replace(policy.limits, outstanding_nominations=BOUND)
    found = await start(tmp_path, policy=replace(policy, limits=limits))
    yield found
    await found.store.close()


def outstanding(bench: Bench) -> list[str]:
    """Jobs that are nominated and have no cluster yet."""
    workloads = bench.state.hub_view().workloads.values()
    return sorted(w.owner.name for w in workloads if w.owner and w.nominated and w.cluster_name is None)


def test_without_a_bound_there_is_always_room() -> None:
    assert Outstanding(None, range(1000)).has_room(0)


def test_only_nominations_of_the_same_or_a_higher_priority_count_against_the_bound() -> None:
    found = Outstanding(2, [5, 5])
    assert not found.has_room(5)
    assert not found.has_room(4)
    assert found.has_room(6)
    found.add(6)
    found.add(6)
    assert not found.has_room(6)
    assert found.has_room(7)


async def test_never_more_than_the_bound_stand_nominated_without_a_cluster_and_all_finish(bounded: Bench) -> None:
    names = [f"one-{number:02d}" for number in range(12)]
    for name in names:
        bounded.fleet.submit(gang(name, gpus=1, product=H100))
    most = 0
    for _ in range(120):
        await bounded.step()
        most = max(most, len(outstanding(bounded)))
        assert len(outstanding(bounded)) <= BOUND
        if bounded.finished(*names)():
            break
    assert bounded.finished(*names)()
    assert most == BOUND


async def test_a_higher_priority_passes_a_full_bound(bounded: Bench) -> None:
    for number in range(8):
        bounded.fleet.submit(gang(f"low-{number}", gpus=1, product=H100))
    await bounded.until(lambda: len(outstanding(bounded)) == BOUND)
    bounded.fleet.submit(gang("urgent", gpus=1, product=H100, priority="release-gate"))
    await bounded.until(lambda: bounded.find("urgent") is not None)
    await bounded.until(lambda: bounded.phase("urgent") is not Phase.WAITING, within_s=2)
    waiting = [name for name in (f"low-{number}" for number in range(8)) if bounded.phase(name) is Phase.WAITING]
    assert waiting, "all of the lower priority were nominated already: the bound was never full"
