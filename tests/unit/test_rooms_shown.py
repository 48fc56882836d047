"""What is free by quota and by nodes is shown where the two disagree (FR-SCO-10), and what yields apart (FR-SCO-06)."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dispatcher.cli.show_lists import clusters_page
from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import ClusterQueueView, Quota, WorkerView
from dispatcher.core.workload import PodSet
from dispatcher.web.fleet import clusters
from dispatcher.web.look import Look
from dispatcher.web.models import ClusterList
from dispatcher.web.rooms import gaps
from tests.unit.api_world import World, worker, workload
from tests.unit.records import NOW, decision, priced

GPU = "nvidia.com/gpu"
TRAINING = QueueName("training")
SAID = "queue training has 16 h100 free by quota and 8 by nodes, and the smaller counts: "
ACCOUNTS = "queues account for 0 in use, pods for 8"


def seen(reserved: int, yielding: int = 0) -> WorkerView:
    """Two nodes of eight GPUs, one of them taken by pods, of which so many yield; so many reserved of the quota."""
    quota = Quota(FlavorName("h100"), GPU, 16, reserved=reserved)
    view = worker("onprem-1", queues={TRAINING: ClusterQueueView(TRAINING, True, quotas=(quota,))})
    taken = replace(view.nodes[0], yielding=Resources.of({GPU: yielding}))
    return replace(view, nodes=(taken, view.nodes[1]))


def shown(view: WorkerView, *, wide: bool, width: int = 200) -> list[str]:
    world = World()
    world.show_worker(view)
    out = io.StringIO()
    page = ClusterList(now=NOW, items=clusters(Look.at(world.state)))
    clusters_page(page, Console(file=out, width=width, no_color=True), wide)
    return [line for line in out.getvalue().splitlines() if line.startswith("onprem-1")]


def test_fr_sco_10_two_accounts_of_what_is_in_use_are_both_shown() -> None:
    _, _, told = shown(seen(reserved=0), wide=True)
    assert told == f"onprem-1: {SAID}{ACCOUNTS}"
    assert len(shown(seen(reserved=0), wide=False)) == 1, "the plain list is a line a cluster"
    assert len(shown(seen(reserved=8), wide=True)) == 2, "where both say the same there is nothing to tell"


def test_fr_sco_06_what_yields_has_a_column_of_its_own() -> None:
    row, _ = shown(seen(reserved=0, yielding=8), wide=True)
    assert row.split()[1:4] == ["2/2", "8/16", "8"], row
    (room,) = next(c for c in clusters(_look(seen(0, yielding=8))) if c.name == "onprem-1").rooms
    assert (room.free, room.by_quota, room.by_nodes, room.yielding) == (16, 16, 16, 8)


@pytest.mark.parametrize("width", [80, 100])
def test_however_many_queues_a_cluster_has_its_numbers_are_shown_whole(width: int) -> None:
    many = {QueueName(f"team-{n}"): ClusterQueueView(QueueName(f"team-{n}"), True) for n in range(9)}
    row, below, *_ = shown(replace(seen(reserved=8), queues=many), wide=True, width=width)
    assert row.split()[1:6] == ["2/2", "8/16", "0", "0", "0"], row
    assert below.startswith("onprem-1: provider "), below


def test_why_tells_of_the_accounts_of_what_was_asked_for() -> None:
    sets = (PodSet("main", 1, Resources.of({GPU: 8})),)
    weighed = decision(candidates=(replace(priced("onprem-1", 1), queue=TRAINING), priced("cloud-eu", 2)))
    (gap,) = gaps(_look(seen(reserved=0)), workload(pod_sets=sets), weighed)
    assert (gap.cluster, gap.text) == (ClusterName("onprem-1"), f"{SAID}{ACCOUNTS}")
    assert gaps(_look(seen(reserved=8)), workload(pod_sets=sets), weighed) == ()
    cpu = (PodSet("main", 1, Resources.of({"cpu": 8000})),)
    assert gaps(_look(seen(reserved=0)), workload(pod_sets=cpu), weighed) == (), "of what it does not ask for: nothing"


def _look(view: WorkerView) -> Look:
    world = World()
    world.show_worker(view)
    return Look.at(world.state)
