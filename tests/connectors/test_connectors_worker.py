"""The worker connector end to end: what its view holds, and when it is connected, stale, blind or out."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from connectors.kubernetes import KubernetesHub, KubernetesWorker, connect_hub, connect_worker
from connectors.kubernetes.watch import PAGES
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ids import ClusterName, FlavorName, QueueName
from dispatcher.core.index import index_view
from dispatcher.core.nodes import largest_free
from dispatcher.core.policy import Credentials
from dispatcher.core.ports import Stop
from dispatcher.core.snapshot import Link, link_of
from dispatcher.core.topology import Topology
from tests.connectors.apiserver import KUEUE, ApiServer, always, named
from tests.connectors.objects import cluster_queue, node, pod, workload
from tests.connectors.support import FakeClock, eventually, in_time, write

KINDS = ("clusterqueues", "localqueues", "cohorts", "resourceflavors", "workloads")
NODES, PODS, SECRETS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/secrets"
ALL = (*(f"{KUEUE}/{kind}" for kind in KINDS), NODES, PODS, "/api/v1/namespaces")


@dataclass
class Bed:
    api: ApiServer
    hub_api: ApiServer
    worker: KubernetesWorker
    hub: KubernetesHub
    clock: FakeClock
    wakes: list[int]

    def link(self, silence_limit_s: int = 60) -> Link:
        return link_of(self.worker.view(), silence_limit_s, self.clock.now())

    def put_secret(self, content: bytes) -> None:
        data = {"kubeconfig": base64.b64encode(content).decode()}
        self.hub_api.put(SECRETS, {**named("w1", "kueue-system"), "data": data})

    async def minute(self) -> None:
        """A quiet minute: the apiserver ends each watch once, sends a bookmark on the next, the heartbeat comes by."""
        for _ in range(3):
            await self.clock.advance(10)
        for path in ALL:
            self.api.watching(path)[0].send(None)
        await eventually(lambda: all(self.api.watching(path) for path in ALL))
        for _ in range(3):
            await self.clock.advance(10)
        for path in ALL:
            self.api.bookmark(path)


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with ApiServer("w1") as api, ApiServer("hub") as hub_api:
        api.serve(*ALL)
        hub_api.serve(SECRETS)
        clock, wakes = FakeClock(), list[int]()
        hub = connect_hub(write(tmp_path / "hub", hub_api.kubeconfig()), clock)
        credentials = Credentials(secret_namespace="kueue-system", secret_name="w1")
        worker = connect_worker(ClusterName("w1"), credentials, hub, clock, silence_limit_s=60)
        bed = Bed(api, hub_api, worker, hub, clock, wakes)
        bed.put_secret(api.kubeconfig())
        task = asyncio.get_running_loop().create_task(worker.run(lambda: wakes.append(1)))
        try:
            await eventually(lambda: worker.view().synced and all(api.watching(path) for path in ALL))
            yield bed
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await hub.close()


async def test_before_anything_was_read_it_is_blind() -> None:
    clock = FakeClock()
    hub = connect_hub(Path("nowhere"), clock)
    worker = connect_worker(ClusterName("w1"), Credentials(), hub, clock)
    view = worker.view()
    assert link_of(view, 60, clock.now()) is Link.BLIND
    assert (view.observed_at, view.nodes, view.copies) == (None, (), {})
    assert worker.name == "w1"


async def test_half_of_a_cluster_is_not_shown(tmp_path: Path) -> None:
    """Until everything has been listed once, a view says nothing: nobody may act on it, and building it costs."""
    refused = always(403)
    async with ApiServer("w1") as api:
        api.serve(*ALL)
        api.put(NODES, node("n1"))
        api.faults["LIST", PODS] = refused
        clock = FakeClock()
        hub = connect_hub(write(tmp_path / "hub", api.kubeconfig()), clock)
        credentials = Credentials(file=str(write(tmp_path / "w1", api.kubeconfig())))
        worker = connect_worker(ClusterName("w1"), credentials, hub, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run(lambda: None))
            await eventually(lambda: api.watching(NODES) and "403" in (worker.view().error or ""))
            view = worker.view()
            assert (view.synced, view.nodes) == (False, ())
            del api.faults["LIST", PODS]
            await clock.advance(30)
            await eventually(lambda: worker.view().synced)
            assert [found.name for found in worker.view().nodes] == ["n1"]
            task.cancel()


async def test_two_pages_of_a_cluster_are_fetched_at_a_time(tmp_path: Path) -> None:
    """Nine kinds start at once; nine pages in memory, times the clusters, would be most of what the daemon takes."""
    open_now, most = 0, 0

    async def counted(_: web.Request) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        for _ in range(50):
            await asyncio.sleep(0)
        open_now -= 1

    async with ApiServer("w1") as api:
        api.serve(*ALL)
        api.faults.update({("LIST", path): counted for path in ALL})
        clock = FakeClock()
        hub = connect_hub(write(tmp_path / "hub", api.kubeconfig()), clock)
        credentials = Credentials(file=str(write(tmp_path / "w1", api.kubeconfig())))
        worker = connect_worker(ClusterName("w1"), credentials, hub, clock)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(worker.run(lambda: None))
            await eventually(lambda: worker.view().synced)
            task.cancel()
    # The heartbeat is a list too, and waits for nobody.
    assert most <= PAGES + 1


async def test_a_view_in_full(bed: Bed) -> None:
    bed.api.put(f"{KUEUE}/clusterqueues", cluster_queue())
    bed.api.put(f"{KUEUE}/localqueues", {**named("main", "team-a"), "spec": {"clusterQueue": "training"}})
    bed.api.put(f"{KUEUE}/cohorts", {**named("fleet"), "spec": {"parentName": "root"}})
    bed.api.put(f"{KUEUE}/resourceflavors", {**named("h100"), "spec": {"nodeLabels": {"gpu": "h100"}}})
    bed.api.put(f"{KUEUE}/workloads", workload(labels={"kueue.x-k8s.io/multikueue-origin": "hub1"}))
    bed.api.put("/api/v1/namespaces", named("team-a"))
    bed.api.put(NODES, node("n2"))
    bed.api.put(NODES, node("n1"))
    bed.api.put(PODS, pod("p", "n1", "3", labels={"batch.kubernetes.io/job-name": "train"}))
    await eventually(lambda: bed.worker.view().copies and bed.worker.view().nodes and bed.worker.view().cohorts)
    await eventually(lambda: next(iter(bed.worker.view().copies.values())).bound_pods == 1)
    view = bed.worker.view()
    assert view.namespaces == ("kube-system", "team-a")
    assert view.queues[QueueName("training")].quotas[1].reserved == 9
    assert view.cohorts["fleet"].parent == "root"
    assert [n.name for n in view.nodes] == ["n1", "n2"]
    assert view.nodes[0].requested.get("nvidia.com/gpu") == 3
    assert view.copies["team-a", "job-train-1a2b3"].ours
    assert view.error is None
    assert bed.link() is Link.CONNECTED


async def test_a_local_queue_whose_cluster_queue_takes_nothing_of_its_namespace_is_not_active(bed: Bed) -> None:
    """Kueue calls both active; by that LocalQueue nothing is ever admitted."""
    active = {"conditions": [{"type": "Active", "status": "True"}]}
    local = {**named("main", "team-a"), "spec": {"clusterQueue": "training"}, "status": active}
    bed.api.put(f"{KUEUE}/localqueues", local)
    bed.api.put(f"{KUEUE}/clusterqueues", cluster_queue(namespaceSelector={"matchLabels": {"team": "a"}}))
    bed.api.put("/api/v1/namespaces", named("team-a"))

    def shown() -> bool | None:
        found = bed.worker.view().local_queues.get(("team-a", "main"))
        return found.active if found is not None else None

    await eventually(lambda: shown() is False and bed.worker.view().queues)
    assert bed.worker.view().queues[QueueName("training")].active
    labelled = named("team-a")
    labelled["metadata"]["labels"] = {"team": "a"}
    bed.api.put("/api/v1/namespaces", labelled)
    await eventually(lambda: shown() is True)
    bed.api.put(f"{KUEUE}/clusterqueues", cluster_queue(namespaceSelector=None))
    await eventually(lambda: shown() is False)
    bed.api.put(f"{KUEUE}/clusterqueues", cluster_queue())
    await eventually(lambda: shown() is True)


async def test_fr_sco_12_pods_count_where_they_are_and_not_where_they_were_assigned(bed: Bed) -> None:
    """The worker's Kueue has recorded n1 for the job; its pod runs on n4."""
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": {"nvidia.com/gpu": "h100"},
        "resourceUsage": {"nvidia.com/gpu": "8"},
        "topologyAssignment": {
            "levels": ["kubernetes.io/hostname"],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 1}}],
        },
    }
    there = workload(labels={"kueue.x-k8s.io/multikueue-origin": "hub1"})
    there["status"]["admission"]["podSetAssignments"] = [assigned]
    bed.api.put(f"{KUEUE}/workloads", there)
    bed.api.put(NODES, node("n1"))
    bed.api.put(NODES, node("n4"))
    bed.api.put(PODS, pod("p", "n4", "8", labels={"batch.kubernetes.io/job-name": "train"}))
    await eventually(lambda: any(copy.bound_pods for copy in bed.worker.view().copies.values()))
    await eventually(lambda: len(bed.worker.view().nodes) == 2)
    free = index_view(bed.worker.view()).base.nodes
    assert {name: largest_free(free, 1 << at, "nvidia.com/gpu") for at, name in enumerate(free.frame.marks.names)} == {
        "n1": 8,
        "n4": 0,
    }


async def test_fr_sco_12_pods_on_a_node_that_is_gone_are_seen(bed: Bed) -> None:
    bed.api.put(NODES, node("n1"))
    bed.api.put(PODS, pod("p", "n1", "8"))
    bed.api.put(PODS, pod("q", "n1", "0"))
    await eventually(lambda: bed.worker.view().nodes and bed.worker.view().nodes[0].requested.items)
    assert bed.worker.view().astray == ()
    bed.api.delete(NODES, "n1")
    await eventually(lambda: bed.worker.view().astray == (("n1", 2),))
    bed.api.put(NODES, node("n1"))
    await eventually(lambda: bed.worker.view().astray == ())
    bed.api.delete(NODES, "n1")
    for name in ("p", "q"):
        bed.api.delete(PODS, name, "team-a")
    await eventually(lambda: not bed.worker.view().nodes)
    await eventually(lambda: bed.worker.view().astray == ())


async def test_a_flavor_is_shown_with_the_levels_of_its_topology(bed: Bed) -> None:
    spec = {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}
    bed.api.put(f"{KUEUE}/resourceflavors", {**named("h100"), "spec": spec})
    await eventually(lambda: bool(bed.worker.view().flavors))
    flavor = FlavorName("h100")
    assert bed.worker.view().flavors[flavor].topology == Topology("racks"), "the API is not served there"
    bed.api.serve(f"{KUEUE}/topologies")
    bed.api.put(f"{KUEUE}/topologies", {**named("racks"), "spec": {"levels": [{"nodeLabel": "rack"}]}})
    await bed.clock.advance(300)
    await eventually(lambda: bed.worker.view().flavors[flavor].topology == Topology("racks", ("rack",)))


async def test_topologies_that_may_not_be_watched_are_listed_and_make_nothing_old_or_new(bed: Bed) -> None:
    spec, path = {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}, f"{KUEUE}/topologies"
    bed.api.put(f"{KUEUE}/resourceflavors", {**named("h100"), "spec": spec})
    bed.api.serve(path)
    bed.api.put(path, {**named("racks"), "spec": {"levels": [{"nodeLabel": "rack"}]}})
    bed.api.faults["WATCH", path] = always(403)
    for _ in range(6):
        await bed.minute()
    levels = Topology("racks", ("rack",))
    await eventually(lambda: bed.worker.view().flavors[FlavorName("h100")].topology == levels)
    before, listed = bed.worker.view().generation, len(bed.api.requests("LIST", path))
    for _ in range(12):
        await bed.minute()
        assert (bed.link(), bed.worker.view().error) == (Link.CONNECTED, None)
    assert bed.worker.view().generation == before
    assert len(bed.api.requests("LIST", path)) >= listed + 2


async def test_where_pods_lie_is_shown_of_flavors_with_a_topology(bed: Bed) -> None:
    """It is kept only once there is such a flavor, and then follows what comes and goes."""
    there = workload(labels={"kueue.x-k8s.io/multikueue-origin": "hub1"})
    given = {"name": "main", "count": 2, "flavors": {"nvidia.com/gpu": "h100"}}
    there["status"]["admission"]["podSetAssignments"] = [given]
    bed.api.put(f"{KUEUE}/workloads", there)
    bed.api.put(NODES, node("n1"))
    of_job = {"labels": {"batch.kubernetes.io/job-name": "train"}}
    for name, on in (("p", "n1"), ("q", "n4"), ("r", "n1")):
        bed.api.put(PODS, pod(name, on, "8", **of_job))
    await eventually(lambda: any(copy.bound_pods == 3 for copy in bed.worker.view().copies.values()))
    assert bed.worker.view().lies == {}
    spec = {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}
    bed.api.put(f"{KUEUE}/resourceflavors", {**named("h100"), "spec": spec})
    await eventually(lambda: bool(bed.worker.view().lies))

    def lies() -> list[tuple[str, int, int]]:
        found = bed.worker.view().lies.get(("team-a", "job-train-1a2b3"), ())
        return [(on, per_pod.get("nvidia.com/gpu"), pods) for on, per_pod, pods in found]

    assert lies() == [("n1", 8, 2), ("n4", 8, 1)]
    bed.api.delete(PODS, "p", "team-a")
    bed.api.delete(PODS, "q", "team-a")
    await eventually(lambda: lies() == [("n1", 8, 1)])
    bed.api.delete(PODS, "r", "team-a")
    await eventually(lambda: lies() == [])


async def test_pods_that_take_nothing_are_not_even_asked_for(bed: Bed) -> None:
    selectors = {s.query["fieldSelector"] for s in (*bed.api.requests("LIST", PODS), *bed.api.requests("WATCH", PODS))}
    assert selectors == {"spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


async def test_the_generation_grows_with_content_and_only_with_it(bed: Bed) -> None:
    before, woken = bed.worker.view().generation, len(bed.wakes)
    await bed.minute()
    assert bed.worker.view().generation == before
    assert len(bed.wakes) == woken
    bed.api.put(NODES, node("n1"))
    await eventually(lambda: bed.worker.view().generation > before)
    assert len(bed.wakes) == woken + 1


async def test_ten_quiet_minutes_stay_connected(bed: Bed) -> None:
    for _ in range(10):
        await bed.minute()
        assert bed.link() is Link.CONNECTED
    assert bed.worker.view().error is None


async def test_fr_wat_01_a_dead_worker_goes_stale_and_comes_back(bed: Bed) -> None:
    bed.api.put(NODES, node("n1"))
    await eventually(lambda: bed.worker.view().nodes)
    await bed.api.stop_listening()
    await eventually(lambda: bed.worker.view().error is not None)
    for _ in range(7):
        await bed.clock.advance(10)
    assert bed.link() is Link.STALE
    assert [n.name for n in bed.worker.view().nodes] == ["n1"], "what was seen stays readable"
    bed.api.delete(NODES, "n1", silently=True)
    bed.api.oldest_version = bed.api.version
    await bed.api.listen_again()
    await in_time(bed.clock, lambda: bed.link() is Link.CONNECTED, 20)
    await eventually(lambda: bed.worker.view().nodes == () and bed.worker.view().error is None)


async def test_a_link_that_hangs_goes_stale_although_no_connection_broke(bed: Bed) -> None:
    async def hang(_: object) -> None:
        await asyncio.get_running_loop().create_future()

    for path in ALL:
        for method in ("LIST", "WATCH"):
            bed.api.faults[method, path] = hang  # type: ignore[assignment]
    for _ in range(7):
        await bed.clock.advance(10)
    assert bed.link() is Link.STALE
    for _ in range(4):
        await bed.clock.advance(10)
    assert bed.link() is Link.STALE, "what was seen stays readable, with its age"


async def test_fr_aut_02_an_insecure_secret_takes_the_worker_out_and_a_good_one_brings_it_back(bed: Bed) -> None:
    bed.api.put(NODES, node("n1"))
    await eventually(lambda: bed.worker.view().nodes)
    bed.put_secret(bed.api.kubeconfig(cluster_insecure_skip_tls_verify=True))
    woken = len(bed.wakes)
    await bed.clock.advance(30)
    await eventually(lambda: bed.worker.view().error is not None)
    view = bed.worker.view()
    assert not view.synced
    assert "insecure-skip-tls-verify is refused" in str(view.error)
    assert bed.link() is Link.BLIND
    assert len(bed.wakes) > woken
    await eventually(lambda: not any(bed.api.watching(path) for path in ALL), "the old connections are closed")
    asked = len(bed.api.seen)
    await bed.clock.advance(25)
    assert len(bed.api.seen) == asked, "the old client is not used any more"
    bed.put_secret(bed.api.kubeconfig())
    await in_time(bed.clock, lambda: bed.link() is Link.CONNECTED and bed.worker.view().error is None, 35)
    assert [n.name for n in bed.worker.view().nodes] == ["n1"]


@pytest.mark.parametrize("broken", [b"{", b"kind: Config\n", b""], ids=["no YAML", "no cluster in it", "empty"])
async def test_fr_wat_02_a_reload_that_fails_takes_the_worker_out_at_once(bed: Bed, broken: bytes) -> None:
    bed.api.put(NODES, node("n1"))
    await eventually(lambda: bed.worker.view().nodes)
    bed.put_secret(broken)
    await bed.clock.advance(30)
    await eventually(lambda: bed.link() is Link.BLIND)
    assert bed.worker.view().error is not None
    await eventually(lambda: not any(bed.api.watching(path) for path in ALL), "the previous client is not kept")


async def test_a_copy_is_stopped_by_its_uid_and_only_that_one(bed: Bed) -> None:
    path = f"{KUEUE}/workloads"
    uid = bed.api.put(path, workload("job-train-a"))["metadata"]["uid"]
    await bed.worker.stop(Stop(uid, "team-a", "job-train-a"))
    assert bed.api.collections[path]["team-a", "job-train-a"]["spec"]["active"] is False
    sent = len(bed.api.seen)
    with pytest.raises(Refused):
        await bed.worker.stop(Stop("", "team-a", "job-train-a"))
    assert len(bed.api.seen) == sent, "nothing is sent without a guard"
    for other in (Stop(uid, "team-a", "gone"), Stop("uid-of-another", "team-a", "job-train-a")):
        with pytest.raises(Conflict):
            await bed.worker.stop(other)


async def test_fr_rac_08_a_lost_worker_is_one_line_in_the_log_and_no_storm(bed: Bed) -> None:
    with capture_logs() as lines:
        await bed.api.stop_listening()
        await eventually(lambda: bed.worker.view().error is not None)
        for _ in range(60):
            await bed.clock.advance(10)
    loud = [line for line in lines if line["log_level"] in ("warning", "error")]
    assert [line["event"] for line in loud] == ["cluster_unreachable"], "ten minutes"
    assert len(bed.api.seen) < 1000


async def test_fr_aut_03_a_rotated_token_reaches_the_worker_within_a_minute_with_at_most_one_401(bed: Bed) -> None:
    bed.put_secret(bed.api.kubeconfig("t1"))
    bed.api.tokens = {"t0", "t1"}
    await bed.clock.advance(31)
    bed.api.tokens = {"t1"}
    bed.api.seen.clear()
    for _ in range(3):
        await bed.clock.advance(10)
    assert {s.headers["Authorization"] for s in bed.api.seen} == {"Bearer t1"}
    assert bed.worker.view().error is None


async def test_a_deleted_secret_takes_the_worker_out(bed: Bed) -> None:
    bed.hub_api.delete(SECRETS, "w1", "kueue-system")
    await bed.clock.advance(30)
    await eventually(lambda: "does not exist" in str(bed.worker.view().error))
    assert bed.link() is Link.BLIND


async def test_a_hub_that_is_away_does_not_take_its_workers_out(bed: Bed) -> None:
    await bed.hub_api.stop_listening()
    for _ in range(3):
        await bed.minute()
    assert bed.link() is Link.CONNECTED


async def test_a_secret_that_leads_to_another_cluster_replaces_everything(bed: Bed) -> None:
    bed.api.put(NODES, node("old"))
    await eventually(lambda: bed.worker.view().nodes)
    async with ApiServer("another") as other:
        other.version = 5
        other.serve(*ALL)
        other.put(NODES, node("new"))
        bed.put_secret(other.kubeconfig())
        await bed.clock.advance(30)
        for _ in range(3):
            await bed.clock.advance(1)
        await eventually(lambda: [n.name for n in bed.worker.view().nodes] == ["new"])
        await eventually(lambda: bed.worker.view().synced)


async def test_a_worker_without_credentials_says_so(bed: Bed) -> None:
    worker = connect_worker(ClusterName("w2"), Credentials(), bed.hub, bed.clock)
    task = asyncio.get_running_loop().create_task(worker.run(lambda: None))
    await eventually(lambda: worker.view().error is not None)
    assert "names no credentials" in str(worker.view().error)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_worker_by_a_kubeconfig_file(bed: Bed, tmp_path: Path) -> None:
    file = write(tmp_path / "w3", bed.api.kubeconfig())
    worker = connect_worker(ClusterName("w3"), Credentials(file=str(file)), bed.hub, bed.clock)
    task = asyncio.get_running_loop().create_task(worker.run(lambda: None))
    await eventually(lambda: worker.view().synced)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_one_kind_that_is_refused_keeps_the_worker_blind_and_is_named(tmp_path: Path) -> None:
    async with ApiServer("w1") as api:
        api.serve(*(path for path in ALL if path != f"{KUEUE}/cohorts"))
        clock = FakeClock()
        hub = connect_hub(Path("nowhere"), clock)
        credentials = Credentials(file=str(write(tmp_path / "w1", api.kubeconfig())))
        worker = connect_worker(ClusterName("w1"), credentials, hub, clock)
        task = asyncio.get_running_loop().create_task(worker.run(lambda: None))
        await eventually(lambda: "cohorts is not served" in str(worker.view().error))
        assert not worker.view().synced
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
