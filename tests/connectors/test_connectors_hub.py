"""The hub connector end to end against a server: views, nominations, Events, owners, readiness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from connectors.kubernetes import KubernetesHub, connect_hub
from connectors.kubernetes.events import MESSAGE_BYTES, cut, event_name
from dispatcher.core.errors import Conflict, Refused, Transient
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import EventType, Nomination, Notice
from tests.connectors.apiserver import KUEUE, ApiServer, Raw, always, named, problem
from tests.connectors.objects import condition, workload
from tests.connectors.support import FakeClock, eventually, in_time, write

WORKLOADS = f"{KUEUE}/workloads"
JOBS = "/apis/batch/v1/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"
RAYJOBS = "/apis/ray.io/v1/rayjobs"
LWS = "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets"
UID = WorkloadUid("uid-job-train-1a2b3")
KINDS = ("workloads", "admissionchecks", "multikueueconfigs", "multikueueclusters", "clusterqueues", "localqueues")


@dataclass
class Bed:
    api: ApiServer
    hub: KubernetesHub
    clock: FakeClock
    wakes: list[int]

    def workload(self) -> Raw:
        return self.api.collections[WORKLOADS]["team-a", "job-train-1a2b3"]


def a_hub() -> ApiServer:
    api = ApiServer("hub")
    api.serve(*(f"{KUEUE}/{kind}" for kind in KINDS), JOBS)
    return api


@asynccontextmanager
async def running(api: ApiServer, path: Path) -> AsyncIterator[Bed]:
    clock, wakes = FakeClock(), list[int]()
    hub = connect_hub(write(path / "hub.kubeconfig", api.kubeconfig()), clock)
    task = asyncio.get_running_loop().create_task(hub.run(lambda: wakes.append(1)))
    try:
        yield Bed(api, hub, clock, wakes)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await hub.close()


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with a_hub() as api:
        api.put(WORKLOADS, workload())
        api.put(JOBS, named("train", "team-a", uid="uid-train", labels={"entrepot.dev/team": "perception", "x": "y"}))
        async with running(api, tmp_path) as found:
            await eventually(lambda: found.hub.view().synced and api.watching(WORKLOADS))
            yield found


def nomination(bed: Bed, *clusters: str, version: str | None = None) -> Nomination:
    names = tuple(ClusterName(c) for c in clusters)
    version = version or bed.hub.view().workloads[UID].resource_version
    return Nomination(UID, "team-a", "job-train-1a2b3", version, names)


# --- views -------------------------------------------------------------------------------------------------------


async def test_a_view_has_everything_and_is_the_same_while_nothing_changes(bed: Bed) -> None:
    bed.api.put(
        f"{KUEUE}/admissionchecks",
        {
            **named("fleet"),
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"name": "all"}},
            "status": {"conditions": [condition("Active")]},
        },
    )
    bed.api.put(f"{KUEUE}/multikueueconfigs", {**named("all"), "spec": {"clusters": ["w2", "w1"]}})
    bed.api.put(f"{KUEUE}/multikueueclusters", {**named("w1"), "status": {"conditions": [condition("Active")]}})
    bed.api.put(f"{KUEUE}/clusterqueues", {**named("training"), "spec": {"stopPolicy": "Hold"}})
    bed.api.put(f"{KUEUE}/localqueues", {**named("main", "team-a"), "spec": {"clusterQueue": "training"}})
    await eventually(lambda: bed.hub.view().local_queues and bed.hub.view().queues and bed.hub.view().clusters)
    await eventually(lambda: bed.hub.view().checks and bed.hub.view().configs)
    view = bed.hub.view()
    assert view.workloads[UID].name == "job-train-1a2b3"
    assert view.owners["uid-train"].keys == (("entrepot.dev/team", "perception"),)
    assert view.checks["fleet"].config == "all"
    assert view.configs["all"] == ("w2", "w1")
    assert view.clusters[ClusterName("w1")].active
    assert view.local_queues["team-a", "main"].cluster_queue == "training"
    assert view.error is None
    assert bed.hub.view().workloads is view.workloads, "not built again for nothing"


async def test_it_is_blind_until_every_list_has_been_read(tmp_path: Path) -> None:
    async with a_hub() as api:
        api.faults["LIST", JOBS] = always(403, "no list for you")
        async with running(api, tmp_path) as bed:
            await eventually(lambda: bed.hub.view().error is not None)
            assert not bed.hub.view().synced
            assert "no list for you" in str(bed.hub.view().error)
            del api.faults["LIST", JOBS]
            await bed.clock.advance(2)
            await eventually(lambda: bed.hub.view().synced)


async def test_absent_jobsets_do_not_hold_the_hub_back_and_are_seen_once_installed(bed: Bed) -> None:
    assert bed.hub.view().synced
    bed.api.serve(JOBSETS)
    bed.api.put(JOBSETS, named("js", "team-a", uid="uid-js"))
    for _ in range(6):
        await bed.clock.advance(55)
        for kind in KINDS:
            bed.api.bookmark(f"{KUEUE}/{kind}")
    await eventually(lambda: "uid-js" in bed.hub.view().owners)


async def test_the_heartbeat_lets_a_quiet_hub_stay_fresh(bed: Bed) -> None:
    before = bed.hub.view().observed_at
    await bed.clock.advance(10)
    await eventually(lambda: bed.hub.view().observed_at != before)
    assert (bed.clock.now() - (bed.hub.view().observed_at or before)).total_seconds() == 0
    assert {s.query["limit"] for s in bed.api.requests("LIST", f"{KUEUE}/clusterqueues")[-1:]} == {"1"}


async def test_a_heartbeat_that_fails_is_said_and_freshness_stands_still(bed: Bed) -> None:
    before = bed.hub.view().observed_at
    bed.api.faults["LIST", f"{KUEUE}/clusterqueues"] = always(500, "broken store")
    await bed.clock.advance(10)
    await eventually(lambda: bed.hub.view().error is not None)
    assert "broken store" in str(bed.hub.view().error)
    assert bed.hub.view().observed_at == before
    del bed.api.faults["LIST", f"{KUEUE}/clusterqueues"]
    await bed.clock.advance(3)
    await eventually(lambda: bed.hub.view().error is None)


async def test_a_workload_with_an_impossible_quantity_is_seen_as_a_problem_and_the_rest_goes_on(bed: Bed) -> None:
    odd = workload("odd")
    odd["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "-4"}
    bed.api.put(WORKLOADS, odd)
    bed.api.put(WORKLOADS, workload("fine"))
    await eventually(lambda: len(bed.hub.view().workloads) == 3)
    assert "cpu: '-4'" in str(bed.hub.view().workloads[WorkloadUid("uid-odd")].problem)
    assert bed.hub.view().workloads[WorkloadUid("uid-fine")].problem is None


# --- owners ------------------------------------------------------------------------------------------------------


def owned(name: str, api_version: str, kind: str, **meta: object) -> Raw:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return workload(f"wl-{name}", ownerReferences=[owner], **meta)


async def test_a_kind_of_owner_that_turns_up_is_found_out_and_watched(bed: Bed) -> None:
    bed.api.serve(RAYJOBS)
    bed.api.put(RAYJOBS, named("r", "team-a", uid="uid-r", annotations={"entrepot.dev/datasets": "radar"}))
    bed.api.extra["/apis/ray.io/v1"] = {
        "resources": [{"name": "rayjobs/status", "kind": "RayJob"}, {"name": "rayjobs", "kind": "RayJob"}]
    }
    bed.api.put(WORKLOADS, owned("r", "ray.io/v1", "RayJob"))
    uid = WorkloadUid("uid-wl-r")
    await eventually(lambda: uid in bed.hub.view().workloads)
    await eventually(lambda: "uid-r" in bed.hub.view().owners)
    assert bed.hub.view().owners["uid-r"].keys == (("entrepot.dev/datasets", "radar"),)
    assert bed.hub.view().workloads[uid].problem is None


async def test_a_workload_whose_owner_cannot_be_seen_is_not_taken_for_undeclared(bed: Bed) -> None:
    bed.api.put(WORKLOADS, owned("t", "trainer.example/v1", "TrainJob"))
    uid = WorkloadUid("uid-wl-t")
    await eventually(lambda: uid in bed.hub.view().workloads)
    assert "TrainJob t (trainer.example/v1) cannot be seen" in str(bed.hub.view().workloads[uid].problem)
    assert bed.hub.view().synced, "the others are dispatched"


async def test_components_are_counted_from_the_owner(bed: Bed) -> None:
    bed.api.serve(LWS)
    bed.api.put(LWS, {**named("serve", "team-a", uid="uid-serve"), "spec": {"replicas": 3}})
    bed.api.extra["/apis/leaderworkerset.x-k8s.io/v1"] = {
        "resources": [{"name": "leaderworkersets", "kind": "LeaderWorkerSet"}]
    }
    annotations = {
        "kueue.x-k8s.io/job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        "kueue.x-k8s.io/job-owner-name": "serve",
        "kueue.x-k8s.io/component-workload-index": "0",
    }
    bed.api.put(WORKLOADS, owned("serve", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", annotations=annotations))
    uid = WorkloadUid("uid-wl-serve")
    await eventually(lambda: uid in bed.hub.view().workloads and bed.hub.view().workloads[uid].component_count == 3)


async def test_a_kind_is_looked_for_once_however_many_workloads_have_it(bed: Bed) -> None:
    for number in range(5):
        bed.api.put(WORKLOADS, owned(f"t{number}", "trainer.example/v1", "TrainJob"))
    await eventually(lambda: len(bed.hub.view().workloads) == 6)
    await bed.clock.advance(30)
    assert len(bed.api.requests("GET", "/apis/trainer.example/v1")) == 1


# --- nominations -------------------------------------------------------------------------------------------------


async def test_a_nomination_is_a_guarded_merge_patch_and_is_seen_at_once(bed: Bed) -> None:
    version = await bed.hub.nominate(nomination(bed, "w1"))
    sent = bed.api.requests("PATCH")[0]
    assert sent.path == f"{KUEUE}/namespaces/team-a/workloads/job-train-1a2b3/status"
    assert sent.query == {"fieldManager": "entrepot"}
    assert sent.headers["Content-Type"] == "application/merge-patch+json"
    assert set(sent.body) == {"metadata", "status"}
    assert set(sent.body["metadata"]) == {"uid", "resourceVersion"}
    assert sent.body["status"] == {"nominatedClusterNames": ["w1"]}
    assert bed.hub.view().workloads[UID].nominated == ("w1",)
    assert bed.hub.view().workloads[UID].resource_version == version == str(bed.api.version)
    assert bed.workload()["status"]["conditions"], "nothing else of the status was touched"


async def test_fr_rac_01_a_nomination_from_an_old_object_is_a_conflict_and_is_not_sent_again(bed: Bed) -> None:
    old = nomination(bed, "w1")
    evicted = workload(status={"conditions": [condition("Evicted")], "clusterName": None})
    bed.api.put(WORKLOADS, evicted)
    with pytest.raises(Conflict, match="modified"):
        await bed.hub.nominate(old)
    assert len(bed.api.requests("PATCH")) == 1
    assert "nominatedClusterNames" not in bed.workload()["status"]
    assert bed.hub.view().workloads[UID].evicted_at is not None, "what overtook us is seen at once"


async def test_what_the_watch_has_brought_before_a_conflict_is_not_asked_for_again(bed: Bed) -> None:
    old = nomination(bed, "w1")
    bed.api.put(WORKLOADS, workload(status={"conditions": [condition("Evicted")], "clusterName": None}))
    await eventually(lambda: bed.hub.view().workloads[UID].evicted_at is not None)
    with pytest.raises(Conflict, match="modified"):
        await bed.hub.nominate(old)
    assert not bed.api.requests("GET", f"{KUEUE}/namespaces/team-a/workloads")


async def test_conflicts_under_a_silent_watch_bring_what_overtook_us_each_time(bed: Bed) -> None:
    """A watch may be silent for a minute. Each conflict shows the object as it is, so that the next decision is made on
    it: no write ever goes against a version that was not judged."""
    for _ in range(3):
        bed.api.put(WORKLOADS, workload(), silently=True)
        with pytest.raises(Conflict, match="modified"):
            await bed.hub.nominate(nomination(bed, "w1"))
        assert bed.hub.view().workloads[UID].resource_version == bed.workload()["metadata"]["resourceVersion"]
    judged = bed.hub.view().workloads[UID].resource_version
    await bed.hub.nominate(nomination(bed, "w1"))
    assert [seen.body["metadata"]["resourceVersion"] for seen in bed.api.requests("PATCH")][-1] == judged


async def test_an_old_plan_asks_nothing_and_the_next_one_gets_on_although_the_watch_fell_silent_since(bed: Bed) -> None:
    old = nomination(bed, "w1")
    bed.api.put(WORKLOADS, workload(status={"conditions": [condition("Evicted")], "clusterName": None}))
    await eventually(lambda: bed.hub.view().workloads[UID].evicted_at is not None)
    bed.api.put(WORKLOADS, workload(), silently=True)
    for plan in (old, nomination(bed, "w1")):
        with pytest.raises(Conflict, match="modified"):
            await bed.hub.nominate(plan)
    await bed.hub.nominate(nomination(bed, "w1"))


async def test_one_that_is_gone_or_another_without_a_word_of_the_watch_is_a_conflict(bed: Bed) -> None:
    bed.api.put(WORKLOADS, workload(uid="another"), silently=True)
    with pytest.raises(Conflict):
        await bed.hub.nominate(nomination(bed, "w1"))
    assert set(bed.hub.view().workloads) == {"another"}
    other = bed.hub.view().workloads[WorkloadUid("another")]
    gone = Nomination(other.uid, other.namespace, other.name, other.resource_version, (ClusterName("w1"),))
    bed.api.delete(WORKLOADS, "job-train-1a2b3", "team-a", silently=True)
    with pytest.raises(Conflict, match="gone"):
        await bed.hub.nominate(gone)


async def test_a_second_workload_of_the_same_name_is_not_nominated_for_the_first(bed: Bed) -> None:
    first = nomination(bed, "w1")
    bed.api.delete(WORKLOADS, "job-train-1a2b3", "team-a")
    bed.api.put(WORKLOADS, workload(uid="another"))
    with pytest.raises(Conflict):
        await bed.hub.nominate(first)


@pytest.mark.parametrize(
    ("status", "error"), [(422, Conflict), (404, Conflict), (403, Refused), (415, Refused), (500, Transient)]
)
async def test_what_the_hub_answers_to_a_nomination(bed: Bed, status: int, error: type[Exception]) -> None:
    path = f"{KUEUE}/namespaces/team-a/workloads/job-train-1a2b3/status"
    bed.api.faults["PATCH", path] = always(status, "clusterName and nominatedClusterNames are mutually exclusive")
    with pytest.raises(error):
        await bed.hub.nominate(nomination(bed, "w1"))
    assert len(bed.api.requests("PATCH")) == 1


@pytest.mark.parametrize(
    "clusters",
    [(), tuple(f"w{n}" for n in range(21)), ("w1", "w1"), ("",)],
    ids=["none", "more than 20", "twice the same", "an empty name"],
)
async def test_a_list_that_cannot_be_valid_is_never_sent(bed: Bed, clusters: tuple[str, ...]) -> None:
    with pytest.raises(Refused):
        await bed.hub.nominate(nomination(bed, *clusters))
    assert bed.api.requests("PATCH") == []


async def test_fr_aut_01_no_write_to_an_address_that_became_another_cluster(bed: Bed, tmp_path: Path) -> None:
    await bed.hub.nominate(nomination(bed, "w1"))
    async with a_hub() as other:
        other.put("/api/v1/namespaces", named("kube-system", uid="uid-of-another"))
        other.put(WORKLOADS, workload())
        write(tmp_path / "hub.kubeconfig", other.kubeconfig())
        await in_time(bed.clock, lambda: other.watching(WORKLOADS), 35)
        with pytest.raises(Refused, match="another cluster"):
            await bed.hub.nominate(nomination(bed, "w2"))
        assert other.requests("PATCH") == []


# --- Events ------------------------------------------------------------------------------------------------------


def notice(message: str = "w1 costs $41.20", reason: str = "Nominated") -> Notice:
    return Notice(UID, "team-a", "job-train-1a2b3", EventType.NORMAL, reason, message)


def events(api: ApiServer) -> list[Raw]:
    return [raw for _, raw in sorted(api.collections["/api/v1/events"].items())]


async def test_an_event_names_the_workload_as_kubectl_describe_looks_for_it(bed: Bed) -> None:
    await bed.hub.notify(notice())
    (event,) = events(bed.api)
    assert event["involvedObject"] == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "namespace": "team-a",
        "name": "job-train-1a2b3",
        "uid": UID,
    }
    assert (event["reason"], event["message"], event["type"]) == ("Nominated", "w1 costs $41.20", "Normal")
    assert (event["count"], event["source"]) == (1, {"component": "entrepot"})
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-08-01T12:00:00Z"


async def test_a_repeat_counts_up_the_same_event_also_after_a_restart(bed: Bed, tmp_path: Path) -> None:
    await bed.hub.notify(notice())
    await bed.clock.advance(60)
    await bed.hub.notify(notice())
    again = connect_hub(write(tmp_path / "again.kubeconfig", bed.api.kubeconfig()), bed.clock)
    await again.notify(notice())
    await again.close()
    (event,) = events(bed.api)
    assert event["count"] == 3
    assert event["lastTimestamp"] == "2026-08-01T12:01:00Z"
    assert event["firstTimestamp"] == "2026-08-01T12:00:00Z"


async def test_another_message_is_another_event(bed: Bed) -> None:
    await bed.hub.notify(notice())
    await bed.hub.notify(notice("held: no capacity", "Held"))
    assert len(events(bed.api)) == 2


async def test_an_event_that_reached_its_end_of_life_is_made_again(bed: Bed) -> None:
    await bed.hub.notify(notice())
    bed.api.collections["/api/v1/events"].clear()
    await bed.hub.notify(notice())
    assert [event["count"] for event in events(bed.api)] == [1]


@pytest.mark.parametrize(("status", "error"), [(403, Refused), (503, Transient), (409, Transient)])
async def test_an_event_that_cannot_be_written(bed: Bed, status: int, error: type[Exception]) -> None:
    await bed.hub.notify(notice())

    async def fail(_: web.Request) -> web.StreamResponse | None:
        return problem(status, "no")

    bed.api.faults["PATCH", f"/api/v1/namespaces/team-a/events/{event_name(notice())}"] = fail
    with pytest.raises(error):
        await bed.hub.notify(notice())


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("short", "short"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "…"),
        ("€" * 400, "€" * 340 + "…"),
        ("🚢" * 300, "🚢" * 255 + "…"),
    ],
    ids=["fits", "just fits", "one byte too long", "three-byte characters", "four-byte characters"],
)
def test_messages_are_cut_between_characters(message: str, expected: str) -> None:
    assert cut(message) == expected
    assert len(cut(message).encode()) <= MESSAGE_BYTES


def test_event_names_are_valid_and_short_enough() -> None:
    long = Notice(UID, "team-a", "a" * 253, EventType.WARNING, "Held", "m")
    assert len(event_name(long)) <= 253
    assert event_name(notice()) == event_name(notice())
    assert event_name(notice("other")) != event_name(notice())
