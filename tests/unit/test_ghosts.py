"""Room that is charged for what is not there is told once it has been so for long (FR-SCO-12)."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, cast

import pytest
from rich.console import Console

from dispatcher.cli.doctor_daemon import ask_daemon
from dispatcher.cli.show_lists import clusters_page
from dispatcher.core.doctor import Code, diagnose
from dispatcher.core.explain_room import ghost_text
from dispatcher.core.ghosts import GHOST_AFTER_S, Ghost, GhostKind, Sightings, look, promises
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import Store
from dispatcher.core.snapshot import Hold, HubView, WorkerCopy, WorkerView
from dispatcher.core.workload import HubWorkload
from dispatcher.loops.gauges import GaugeLoop
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.web.fleet import clusters
from dispatcher.web.look import Look
from dispatcher.web.models import ClusterList
from tests.core_builders import FLAVOR, NOW, copy, hold, res, worker
from tests.unit import api_world
from tests.unit.doctor_facts import healthy

ONPREM = ClusterName("onprem")
LATER = NOW + timedelta(seconds=GHOST_AFTER_S + 1)
RUNS = copy("train", count=2, bound=0, admitted_at=NOW - timedelta(minutes=1))


def seen_twice(
    first: WorkerView | None,
    second: WorkerView | None,
    holds: tuple[Hold, ...] = (),
    later: datetime = LATER,
    known: Sightings | None = None,
) -> tuple[Ghost, ...]:
    """What two looks make of a worker's views."""
    _, sightings = look(known or Sightings(), {ONPREM: first}, holds, NOW)
    return look(sightings, {ONPREM: second}, holds, later)[0]


def with_copy(*copies: WorkerCopy) -> WorkerView:
    return worker(copies=copies)


def test_fr_sco_12_a_copy_without_pods_is_a_ghost_once_it_has_been_one_for_long() -> None:
    view = with_copy(RUNS)
    expected = Ghost(ONPREM, GhostKind.NO_PODS, "team/train", NOW, pods=2, gpus=16)
    assert seen_twice(view, view) == (expected,)
    assert seen_twice(view, view, later=NOW + timedelta(seconds=GHOST_AFTER_S)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"bound_pods": 1},
        {"admitted_at": None},
        {"quota_reserved_at": None},
        {"evicted_at": NOW},
        {"finished": True},
        {"active": False},
        {"uid": "another"},
        {"pod_sets": (("main", 0, res(8), FLAVOR),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_has_pods_or_takes_no_room_is_no_ghost(changes: dict[str, object]) -> None:
    assert seen_twice(with_copy(RUNS), with_copy(replace(RUNS, **changes))) == ()  # type: ignore[arg-type]


def test_pods_that_come_in_between_begin_the_time_anew() -> None:
    view, at_work = with_copy(RUNS), with_copy(replace(RUNS, bound_pods=2))
    _, sightings = look(Sightings(), {ONPREM: view}, (), NOW)
    _, sightings = look(sightings, {ONPREM: at_work}, (), NOW + timedelta(seconds=600))
    _, sightings = look(sightings, {ONPREM: view}, (), NOW + timedelta(seconds=800))
    assert look(sightings, {ONPREM: view}, (), LATER)[0] == ()


def test_of_a_worker_that_is_away_nothing_is_concluded_and_that_time_does_not_count() -> None:
    """Minutes 0 to 10 seen, 10 to 40 away, from then on seen again: it is a ghost at minute 46."""
    view, at = with_copy(RUNS), {minute: NOW + timedelta(minutes=minute) for minute in range(50)}
    _, sightings = look(Sightings(), {ONPREM: view}, (), at[0])
    _, sightings = look(sightings, {ONPREM: view}, (), at[10])
    for minute in (20, 39, 40):
        ghosts, sightings = look(sightings, {ONPREM: None}, (), at[minute])
        assert ghosts == ()
    told = {minute: look(sightings, {ONPREM: view}, (), at[minute])[0] for minute in (41, 45, 46)}
    assert {minute: [ghost.since for ghost in ghosts] for minute, ghosts in told.items()} == {
        41: [],
        45: [],
        46: [at[30]],
    }


def test_a_cluster_that_is_taken_out_of_the_fleet_is_forgotten() -> None:
    _, sightings = look(Sightings(), {ONPREM: with_copy(RUNS)}, (), NOW)
    assert look(sightings, {}, (), LATER)[1].since == {}


def test_a_copy_that_is_admitted_anew_has_its_time_anew() -> None:
    """Evicted and admitted again between two looks, or while its worker was away: the same object, other pods."""
    again = replace(RUNS, admitted_at=LATER)
    assert seen_twice(with_copy(RUNS), with_copy(again)) == ()


def test_fr_sco_12_pods_on_a_node_that_is_gone_are_a_ghost() -> None:
    view = replace(worker(), astray=(("n9", 3),))
    assert seen_twice(view, view) == (Ghost(ONPREM, GhostKind.NODE_GONE, "n9", NOW, pods=3),)
    assert seen_twice(view, worker()) == ()


def test_fr_sco_12_a_promise_whose_copy_never_came_is_a_ghost() -> None:
    promised = (hold("train"), hold("far", cluster="cloud"))
    assert seen_twice(worker(), worker(), promised) == (
        Ghost(ONPREM, GhostKind.NO_COPY, "team/train", NOW, pods=1, gpus=8),
    )
    assert seen_twice(worker(), with_copy(copy("train", reserved=False)), promised) == ()
    of_before = (replace(promised[0], former_copy="w-train"),)
    assert len(seen_twice(worker(), with_copy(copy("train", reserved=False)), of_before)) == 1


def nominated(name: str = "train", *, clusters: tuple[ClusterName, ...] = (ONPREM,)) -> HubView:
    uid = WorkloadUid(f"uid-{name}")
    one = HubWorkload(uid, "team", name, "1", NOW, "queue", nominated=clusters)
    return HubView(synced=True, observed_at=NOW, workloads={one.uid: one})


@pytest.mark.parametrize(
    ("hub", "left_s", "counts"),
    [
        (nominated(), 1, True),
        (nominated(), 0, False),
        (nominated(clusters=(ClusterName("cloud"),)), 1, False),
        (nominated("another"), 1, False),
    ],
    ids=["it stands", "the hold has run out", "it went elsewhere", "the job is gone"],
)
def test_only_the_hold_of_a_nomination_that_stands_is_a_promise(hub: HubView, left_s: int, *, counts: bool) -> None:
    held = hold("train", expires_at=NOW + timedelta(seconds=left_s))
    assert promises([held], hub, NOW) == ((held,) if counts else ())


def test_while_the_hub_is_away_no_copy_can_be_expected_and_that_time_does_not_count() -> None:
    """MultiKueue on a hub that is down makes no copies, and whoever was nominated may be gone."""
    held = (hold("train"),)
    _, sightings = look(Sightings(), {ONPREM: worker()}, held, NOW)
    away, sightings = look(sightings, {ONPREM: worker()}, None, LATER)
    back, sightings = look(sightings, {ONPREM: worker()}, held, LATER + timedelta(minutes=1))
    assert (away, back) == ((), ())
    late, _ = look(sightings, {ONPREM: worker()}, held, LATER + timedelta(seconds=GHOST_AFTER_S + 1))
    assert [(ghost.kind, ghost.since) for ghost in late] == [(GhostKind.NO_COPY, LATER)]


class Charged(NamedTuple):
    kind: GhostKind
    pods: int
    gpus: int | None = None


# --- shown -------------------------------------------------------------------------------------------------------


def shown(world: api_world.World, *, wide: bool) -> str:
    out = io.StringIO()
    page = ClusterList(now=world.clock.now(), items=clusters(Look.at(world.state)))
    clusters_page(page, Console(file=out, width=250, no_color=True), wide)
    return out.getvalue()


def haunted() -> tuple[api_world.World, Metrics]:
    """A worker that has shown a copy without pods, and pods on a node that is gone, for sixteen minutes."""
    world, metrics = api_world.World(), Metrics()
    loop = GaugeLoop(world.state, metrics, Health(world.clock))
    for minutes in (0, 16):
        world.clock.at += timedelta(minutes=minutes)
        world.show_worker(api_world.worker("onprem-1", RUNS, astray=(("n9", 3),), observed_at=world.clock.at))
        loop.look()
    return world, metrics


def test_fr_sco_12_ghosts_are_shown_and_counted() -> None:
    world, metrics = haunted()
    wide = shown(world, wide=True)
    assert "onprem-1: ghost: 16 GPUs are taken by team/train, of which no pod has been on a node for 16 m" in wide
    assert "onprem-1: ghost: 3 pods are on node n9, which has not been there for 16 m" in wide
    assert "2 ghosts (-o wide)" in shown(world, wide=False)
    exposed = metrics.text().decode()
    assert 'entrepot_ghosts{cluster="onprem-1",kind="no-pods"} 1.0' in exposed
    assert 'entrepot_ghosts{cluster="onprem-1",kind="no-copy"} 0.0' in exposed


@pytest.mark.parametrize(
    ("ghost", "text"),
    [
        pytest.param(Charged(GhostKind.NODE_GONE, 1), "1 pod is on node x, which", id="one pod on a node that is gone"),
        pytest.param(Charged(GhostKind.NODE_GONE, 2), "2 pods are on node x, which", id="two pods on such a node"),
        pytest.param(Charged(GhostKind.NO_PODS, 1, 1), "1 GPU is taken by x, of", id="one GPU without a pod"),
        pytest.param(Charged(GhostKind.NO_PODS, 1, 2), "2 GPUs are taken by x, of", id="two GPUs without a pod"),
        pytest.param(
            Charged(GhostKind.NO_COPY, 1, 0), "room for 1 pod is promised to x, of", id="one pod without GPUs"
        ),
        pytest.param(Charged(GhostKind.NO_COPY, 3, 0), "room for 3 pods is promised to x, of", id="three of them"),
    ],
)
def test_a_ghost_is_told_in_the_right_number(ghost: Charged, text: str) -> None:
    assert ghost_text(Ghost(ClusterName("onprem-1"), ghost.kind, "x", NOW, ghost.pods, ghost.gpus), NOW).startswith(
        text
    )


@pytest.mark.parametrize(("hub_s", "told"), [(1, ["no-copy"]), (600, [])], ids=["seen", "away"])
def test_no_copy_is_missed_while_the_hub_is_away(hub_s: int, told: list[str]) -> None:
    world, one = api_world.World(), api_world.workload(nominated=(ClusterName("onprem-1"),))
    promise = hold(workload=one.uid, workload_key=one.key, cluster="onprem-1", expires_at=LATER + timedelta(hours=1))
    world.state.holds = {one.uid: (promise,)}
    loop = GaugeLoop(world.state, Metrics(), Health(world.clock))
    for minutes in (0, 16):
        world.clock.at += timedelta(minutes=minutes)
        seen_at = world.clock.at - timedelta(seconds=hub_s)
        world.hub.shown = replace(api_world.hub(one), observed_at=seen_at)
        world.show_worker(api_world.worker("onprem-1", observed_at=world.clock.at))
        loop.look()
    assert [ghost.kind for ghost in world.state.ghosts] == told


def test_fr_sco_12_the_doctor_tells_what_the_daemon_saw() -> None:
    world, _ = haunted()
    with api_world.served(api_world.api_of(world.state, cast(Store, None), world.vitals)) as url:
        daemon = ask_daemon(url, lambda _: None)
    found = [f for f in diagnose(replace(healthy(), daemon=daemon)) if f.code is Code.GHOST]
    assert [(f.where.cluster, f.where.kind, f.where.name, f.where.namespace) for f in found] == [
        ("onprem-1", "Node", "n9", ""),
        ("onprem-1", "Workload", "train", "team"),
    ]
    assert "no pod has been on a node for 16 m" in found[1].seen
    assert all(f.fix for f in found)
