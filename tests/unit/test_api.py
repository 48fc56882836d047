"""The read-only API: what it answers, from evidence, with codes and words, and how it says no."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from dispatcher.core.decision import Reason, Rejection, Resolver
from dispatcher.core.declaration import InputProblem
from dispatcher.core.ids import ClusterName, DecisionId
from dispatcher.core.snapshot import StopPolicy
from dispatcher.core.workload import CheckState, HubWorkload
from dispatcher.runtime import LoopHealth
from dispatcher.state import BlueprintStatus
from dispatcher.store import SqlStore
from tests.store_files import disconnect
from tests.stores import new_store
from tests.unit.api_world import World, admitted_on, api_of, copy_of, hub, worker, workload
from tests.unit.records import NOW, USD, decision, hold_of, no_nodes, priced, rejected

KEY = "team-a/job-train-1f3a"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await new_store(tmp_path / "store.db")
    yield opened
    await opened.close()


@pytest.fixture
async def api(world: World, store: SqlStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(api_of(world.state, store, world.vitals))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


async def state_text(api: httpx.AsyncClient) -> str:
    return str((await api.get(f"/v1/workloads/{KEY}")).json()["state"]["text"])


# --- probes ------------------------------------------------------------------------------------------------------


async def test_health_is_good_while_every_loop_comes_round(api: httpx.AsyncClient) -> None:
    answer = await api.get("/healthz")
    assert answer.status_code == 200
    assert [loop["limit_s"] for loop in answer.json()["loops"]] == [60.0, None]


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        (LoopHealth("dispatch", 90.0, 60.0, True), "loop dispatch has been silent for 1m (limit 1m)"),
        (LoopHealth("notify", 1.0, 60.0, False, "ValueError: x"), "loop notify died: ValueError: x"),
    ],
    ids=["a silent loop is named", "a dead loop is named"],
)
async def test_health_is_bad_when_a_loop_is(api: httpx.AsyncClient, world: World, loop: LoopHealth, told: str) -> None:
    world.vitals.beats = (*world.vitals.beats, loop)
    answer = await api.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["text"] == told


async def test_health_says_that_files_are_refused_and_is_good_all_the_same(
    api: httpx.AsyncClient, world: World
) -> None:
    assert (await api.get("/healthz")).json()["text"] == "all loops come round"
    world.state.blueprint = BlueprintStatus("cccccccccccccccc", NOW, ("fleet.yaml:3:5: error: x",), NOW)
    answer = await api.get("/healthz")
    assert answer.status_code == 200
    assert "the last good ones rule" in answer.json()["text"]


async def test_readiness_tells_why_not(api: httpx.AsyncClient, world: World) -> None:
    assert (await api.get("/readyz")).status_code == 200
    world.vitals.unready = ("the hub has not been read",)
    answer = await api.get("/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["the hub has not been read"])


async def test_metrics_are_passed_through(api: httpx.AsyncClient) -> None:
    answer = await api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"entrepot_holds 1.0" in answer.content


# --- what a workload is doing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "code", "text"),
    [
        (workload(), "waiting", "waiting for a cluster for 12m"),
        (workload(quota_reserved_at=None), "no-quota", "waiting for quota on the hub for 15m"),
        (
            workload(checks=(CheckState("budget", "Pending"), CheckState("multikueue", "Pending"))),
            "other-checks",
            "waiting for other admission checks: budget",
        ),
        (
            workload(nominated=(ClusterName("cloud-eu"),)),
            "nominated",
            "nominated to cloud-eu, not admitted there yet",
        ),
        (workload(job=None), "held", "held until its input is corrected"),
        (workload(active=False), "inactive", "not running: deactivated (spec.active is false)"),
        (
            workload(evicted_at=NOW - timedelta(minutes=2)),
            "evicting",
            "not running: evicted on the hub 2m ago, waiting to be placed again",
        ),
        (
            workload(finished=True, finished_at=NOW - timedelta(hours=2), finished_reason="Succeeded"),
            "finished",
            "finished 2h00m ago (Succeeded)",
        ),
        (workload(deleting=True), "deleting", "being deleted"),
        (workload(checks=()), "not-ours", "not dispatched by MultiKueue (not-multikueue)"),
    ],
    ids=[
        "waits for a nomination",
        "waits for quota",
        "waits for another check",
        "is nominated",
        "has no owner",
        "is deactivated",
        "is evicted on the hub",
        "is finished",
        "is being deleted",
        "is no business of MultiKueue",
    ],
)
async def test_state_before_and_after_a_worker_has_it(
    api: httpx.AsyncClient, world: World, shown: HubWorkload, code: str, text: str
) -> None:
    world.show(shown)
    state = (await api.get(f"/v1/workloads/{KEY}")).json()["state"]
    assert (state["code"], state["text"]) == (code, text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "running on onprem-1 for 11m, seen 3s ago"),
        ({"bound_pods": 0}, "starting on onprem-1: admitted 11m ago, no pod on a node yet"),
        (
            {"evicted_at": NOW - timedelta(minutes=12), "evicted_reason": "Preempted"},
            "not running: evicted on onprem-1 12m ago (Preempted)",
        ),
        ({"finished": True}, "finished on onprem-1, the hub has not taken the result over yet"),
        (
            {"admitted_at": None, "quota_reserved_at": None, "quota_message": "insufficient unused quota"},
            "not running: queued on onprem-1 (insufficient unused quota)",
        ),
        ({"ours": False}, "not running: the hub places it on onprem-1, which shows no copy of it"),
    ],
    ids=[
        "pods are bound: it runs",
        "no pod is bound: it starts",
        "the worker evicted it: it does not run, whatever the hub says (FR-CLI-01)",
        "the worker finished it",
        "the worker has it in its queue",
        "the copy of that name is not ours",
    ],
)
async def test_running_is_what_the_worker_shows(
    api: httpx.AsyncClient, world: World, changes: dict[str, object], text: str
) -> None:
    placed = admitted_on("onprem-1")
    world.show(placed)
    world.show_worker(worker("onprem-1", copy_of(placed, **changes)))
    assert await state_text(api) == text


async def test_fr_cli_03_pods_are_those_on_nodes_with_their_age_and_none_once_suspended(
    api: httpx.AsyncClient, world: World
) -> None:
    """The job's own status.active is never read: a suspended one may say 1 for ever."""
    placed = admitted_on("onprem-1")
    world.show(placed)
    world.show_worker(worker("onprem-1", copy_of(placed, bound_pods=1), seen_s=3))
    (seen,) = (await api.get(f"/v1/workloads/{KEY}")).json()["state"]["evidence"]
    assert (seen["bound_pods"], seen["age_s"]) == (1, 3)
    gone = {"evicted_at": NOW - timedelta(seconds=40), "evicted_reason": "Preempted", "bound_pods": 0}
    world.show_worker(worker("onprem-1", copy_of(placed, **gone)))
    (seen,) = (await api.get(f"/v1/workloads/{KEY}")).json()["state"]["evidence"]
    assert seen["bound_pods"] == 0
    world.show(replace(placed, evicted_at=NOW - timedelta(seconds=30)))
    world.show_worker(worker("onprem-1", copy_of(placed, bound_pods=1)))
    state = (await api.get(f"/v1/workloads/{KEY}")).json()["state"]
    assert (state["code"], state["evidence"]) == ("evicting", []), "suspended on the hub: no counter is shown"


async def test_an_old_view_is_no_evidence_of_running(api: httpx.AsyncClient, world: World) -> None:
    placed = admitted_on("onprem-1")
    world.show(placed)
    world.show_worker(worker("onprem-1", copy_of(placed), seen_s=180))
    text = await state_text(api)
    assert text == (
        "unknown: onprem-1 was last seen 3m ago; then it was admitted there. It stays there (on_unreachable: stay)"
    )
    world.show_worker(worker("onprem-1", seen_s=None))
    unseen = "unknown: onprem-1 has not been seen since the daemon started. It stays there (on_unreachable: stay)"
    assert await state_text(api) == unseen


async def test_the_queue_is_in_deciding_order_and_numbers_those_that_can_be_decided(
    api: httpx.AsyncClient, world: World
) -> None:
    late = workload("a/late", "late", quota_reserved_at=NOW - timedelta(minutes=1))
    first = workload("a/urgent", "urgent", priority=1000, quota_reserved_at=NOW)
    broken = workload("b/broken", "broken", quota_reserved_at=NOW - timedelta(hours=1))
    world.show(late, first, broken, admitted_on("onprem-1"))
    problem = InputProblem("entrepot.dev/datasets", "radar-2062", "is not in the catalog", "did you mean 'radar-2026'?")
    world.state.problems[broken.uid] = (problem,)
    body = (await api.get("/v1/workloads")).json()
    assert body["total"] == 4
    shown = [(w["name"], w["order"], w["state"]["code"]) for w in body["items"]]
    assert shown == [
        ("urgent", 1, "waiting"),
        ("broken", None, "held"),
        ("job-train-1f3a", None, "missing-on-worker"),
        ("late", 2, "waiting"),
    ]
    held = body["items"][1]
    assert "radar-2062" in held["reason"]
    assert held["problems"][0]["fix"] == "did you mean 'radar-2026'?"


async def test_the_queue_is_cut_into_pages_and_by_namespace_and_state(api: httpx.AsyncClient, world: World) -> None:
    world.show(*(workload(f"a/w{n}", f"j{n}") for n in range(5)), workload("b/w", "j"))
    page = (await api.get("/v1/workloads", params={"limit": 2, "offset": 2})).json()
    assert (page["total"], [w["name"] for w in page["items"]]) == (6, ["w2", "w3"])
    assert (await api.get("/v1/workloads", params={"namespace": "b"})).json()["total"] == 1
    assert (await api.get("/v1/workloads", params={"state": "running"})).json()["total"] == 0


# --- why ---------------------------------------------------------------------------------------------------------


async def test_why_has_costs_rejections_changes_history_and_ages(
    api: httpx.AsyncClient, world: World, store: SqlStore
) -> None:
    placed = admitted_on("onprem-1")
    world.show(placed)
    world.show_worker(worker("onprem-1", copy_of(placed)))
    waited = decision(1, chosen=None, at=NOW - timedelta(minutes=12))
    made = decision(
        2,
        candidates=(
            priced("onprem-1", 36 * USD, 0, 5 * USD, 200_000),
            priced("cloud-eu", 31 * USD, 19 * USD, 5 * USD),
            rejected("cloud-us", Rejection(Reason.NOT_IN_ANNOTATION, Resolver.OWNER), no_nodes()),
        ),
    )
    for record in (waited, made):
        await store.commit(record, None, None)
    world.state.latest[made.workload] = made

    body = (await api.get("/v1/why/team-a/train")).json()

    assert body["job"] == {"kind": "Job", "name": "train"}
    assert body["headline"].startswith("running on onprem-1 for 11m, seen 3s ago. ")
    candidates = body["decision"]["candidates"]
    assert [c["cluster"] for c in candidates] == ["onprem-1", "cloud-eu", "cloud-us"]
    assert candidates[0]["total"] == {"usd_micro": 41_200_000, "text": "$41.20"}
    assert [t["amount"]["usd_micro"] for t in candidates[1]["terms"]] == [31 * USD, 19 * USD, 5 * USD, 0]
    assert [r["reason"] for r in candidates[2]["rejections"]] == ["not-in-annotation", "nodes"]
    assert all(r["text"] and r["resolver_text"] for r in candidates[2]["rejections"])
    assert candidates[2]["rejections"][1]["detail"]["needed"] == 8
    assert [(c["cluster"], c["gap"] and c["gap"]["usd_micro"]) for c in body["counterfactuals"]] == [
        ("cloud-eu", 13_800_000),
        ("cloud-us", None),
    ]
    assert [d["id"] for d in body["history"]] == [made.id, waited.id]
    assert body["waits_for"] == []
    ages = {age["cluster"]: (age["age_s"], age["decided_with_age_s"]) for age in body["data_age"]}
    assert ages == {"cloud-eu": (3, 4), "cloud-us": (3, 4), "onprem-1": (3, 4)}
    assert body["policy_changed"] is False


async def test_why_of_a_waiting_job_tells_what_it_waits_for_and_since_when(
    api: httpx.AsyncClient, world: World
) -> None:
    waiting = workload()
    world.show(waiting)
    made = decision(1, chosen=None, candidates=(rejected("cloud-eu", no_nodes()), rejected("onprem-1", no_nodes())))
    world.state.latest[waiting.uid] = replace(made, policy_digest="older")
    body = (await api.get("/v1/why/team-a/train")).json()
    assert [(w["cluster"], w["reason"], w["resolver"]) for w in body["waits_for"]] == [
        ("cloud-eu", "nodes", "wait"),
        ("onprem-1", "nodes", "wait"),
    ]
    assert body["waiting_since"] == "2026-03-02T09:18:00Z"
    assert body["workload"]["order"] == 1
    assert body["policy_changed"] is True


async def test_why_names_the_input_that_holds_a_job(api: httpx.AsyncClient, world: World) -> None:
    held = workload()
    world.show(held)
    world.state.problems[held.uid] = (InputProblem("entrepot.dev/max-cost", "cheap", "is no amount", "write 120 USD"),)
    body = (await api.get("/v1/why/team-a/train")).json()
    assert body["decision"] is None
    assert body["problems"] == [
        {"key": "entrepot.dev/max-cost", "value": "cheap", "rule": "is no amount", "fix": "write 120 USD"}
    ]
    assert "cheap" in body["headline"]


async def test_why_still_answers_when_the_store_does_not(
    api: httpx.AsyncClient, world: World, store: SqlStore, tmp_path: Path
) -> None:
    world.show(workload())
    world.state.latest[workload().uid] = decision(1, chosen=None)
    await disconnect(store)
    (tmp_path / "store.db").unlink()
    (tmp_path / "store.db").mkdir()
    body = (await api.get("/v1/why/team-a/train")).json()
    assert body["decision"]["outcome"] == "wait"
    assert "store" in body["history_error"]
    listing = await api.get("/v1/decisions")
    assert (listing.status_code, listing.json()["title"]) == (503, "store unavailable")


async def test_a_job_that_is_gone_is_answered_from_its_records(api: httpx.AsyncClient, store: SqlStore) -> None:
    await store.commit(decision(), None, None)
    body = (await api.get("/v1/why/team-a/train")).json()
    assert (body["workload"], body["decision"]["chosen"], body["from_records"]) == (None, "onprem-1", False)
    gone = await api.get("/v1/workloads/team-a/train")
    assert (gone.status_code, gone.json()["title"]) == (404, "workload gone")


# --- names -------------------------------------------------------------------------------------------------------


async def test_an_unknown_job_lists_names_that_may_have_been_meant(api: httpx.AsyncClient, world: World) -> None:
    world.show(workload(), workload("team-b/job-eval-2", "eval"))
    answer = await api.get("/v1/why/team-a/trian")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["type"] == "urn:entrepot:problem:no-such-workload"
    assert body["near"] == ["team-a/train"]
    assert body["fix"]


async def test_a_name_in_several_namespaces_is_suggested_in_its_own_first_and_no_job_twice(
    api: httpx.AsyncClient, world: World
) -> None:
    world.show(workload(), workload("team-b/job-train-2", "train"), workload("team-b/job-eval-2", "eval"))
    near = (await api.get("/v1/why/team-b/trian")).json()["near"]
    assert near == ["team-b/train", "team-a/train"]
    assert (await api.get("/v1/why/team-b/xyz")).json()["near"] == []


async def test_a_name_of_two_kinds_of_jobs_is_ambiguous_until_the_kind_is_named(
    api: httpx.AsyncClient, world: World
) -> None:
    world.show(workload(), workload("team-a/jobset-train-9", "train", kind="JobSet"))
    answer = await api.get("/v1/why/team-a/train")
    assert (answer.status_code, answer.json()["near"]) == (409, ["job/train", "jobset/train"])
    chosen = await api.get("/v1/why/team-a/train", params={"kind": "JobSet"})
    assert chosen.json()["name"] == "jobset-train-9"


async def test_of_several_workloads_of_one_job_the_newest_live_one_counts(api: httpx.AsyncClient, world: World) -> None:
    old = workload("team-a/job-train-0", finished=True, created_at=NOW)
    new = workload("team-a/job-train-1", created_at=NOW - timedelta(minutes=5))
    older = workload("team-a/job-train-2", created_at=NOW - timedelta(minutes=9))
    world.show(old, new, older)
    assert (await api.get("/v1/workloads/team-a/train")).json()["name"] == "job-train-1"


async def test_a_bare_name_is_matched_in_every_namespace_and_then_in_the_records(
    api: httpx.AsyncClient, world: World, store: SqlStore
) -> None:
    world.show(workload(), workload("team-b/job-train-2", "train"))
    await store.commit(decision(1, key="team-c/job-old-1", job="old"), None, None)
    live = (await api.get("/v1/matches", params={"name": "train"})).json()["items"]
    assert [(m["namespace"], m["live"]) for m in live] == [("team-a", True), ("team-b", True)]
    kept = (await api.get("/v1/matches", params={"name": "old"})).json()["items"]
    assert [(m["namespace"], m["name"], m["live"]) for m in kept] == [("team-c", "job-old-1", False)]
    nothing = (await api.get("/v1/matches", params={"name": "trai"})).json()
    assert (nothing["items"], nothing["near"][0]) == ([], "team-a/train")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/why/Team_A/train",
        "/v1/why/team-a/..%2Ftrain",
        f"/v1/why/team-a/{'x' * 254}",
        "/v1/why-not/team-a/train/cloud eu",
        "/v1/workloads?limit=100000",
        "/v1/workloads?offset=-1",
        "/v1/decisions?outcome=maybe",
        "/v1/decisions/%24",
        "/v1/matches?name=A",
    ],
)
async def test_names_and_limits_are_checked_at_the_border(api: httpx.AsyncClient, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["fix"]


@pytest.mark.parametrize(
    ("path", "detail", "near"),
    [
        ("/v1/workloads?limit=many", "limit = 'many': a whole number is expected", []),
        ("/v1/workloads?limit=0", "limit = '0': at least 1 is expected", []),
        ("/v1/workloads?state=runing", "state = 'runing': one of waiting, held, ", ["running"]),
        ("/v1/workloads?namespace=A", "namespace = 'A': a namespace (at most 63 lower case letters", []),
        ("/v1/decisions?outcome=nominated", "outcome = 'nominated': one of nominate, add, wait", ["nominate"]),
        ("/v1/decisions/%24", "decision_id = '$': a decision's id", []),
        ("/v1/matches", "name: it is missing", []),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("/") else "",
)
async def test_bad_input_is_told_in_our_words(api: httpx.AsyncClient, path: str, detail: str, near: list[str]) -> None:
    body = (await api.get(path)).json()
    assert body["detail"].startswith(detail)
    assert (body["title"], body["near"]) == ("bad input", near)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_changed(api: httpx.AsyncClient, method: str) -> None:
    for path in ("/v1/workloads", "/v1/decisions/x", "/v1/why/a/b"):
        answer = await api.request(method, path)
        assert (answer.status_code, answer.json()["title"]) == (405, "read only")


async def test_an_unknown_path_says_so_in_the_same_form(api: httpx.AsyncClient) -> None:
    answer = await api.get("/v2/everything")
    assert (answer.status_code, answer.json()["title"]) == (404, "no such path")


# --- why not -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "code", "difference"),
    [
        ("cloud-eu", "dearer", 13_800_000),
        ("onprem-1", "chosen", 0),
        ("cloud-us", "not-considered", None),
    ],
)
async def test_why_not_a_cluster(
    api: httpx.AsyncClient, world: World, cluster: str, code: str, difference: int | None
) -> None:
    world.show(workload())
    world.state.latest[workload().uid] = decision()
    body = (await api.get(f"/v1/why-not/team-a/train/{cluster}")).json()
    assert body["code"] == code
    assert (body["difference"] or {}).get("usd_micro") == difference
    assert body["text"].startswith(cluster)


async def test_why_not_a_rejected_cluster_gives_every_reason(api: httpx.AsyncClient, world: World) -> None:
    world.show(workload())
    both = (no_nodes(), Rejection(Reason.QUEUE_STOPPED, Resolver.OPERATOR))
    world.state.latest[workload().uid] = decision(1, chosen=None, candidates=(rejected("cloud-us", *both),))
    body = (await api.get("/v1/why-not/team-a/train/cloud-us")).json()
    assert body["code"] == "rejected"
    assert [r["reason"] for r in body["candidate"]["rejections"]] == ["nodes", "queue-stopped"]
    assert body["counterfactuals"][0]["alone"] is False


async def test_why_not_an_unknown_cluster_lists_the_near_ones(api: httpx.AsyncClient, world: World) -> None:
    world.show(workload())
    world.state.latest[workload().uid] = decision()
    body = (await api.get("/v1/why-not/team-a/train/cloud-euu")).json()
    assert (body["title"], body["near"][0]) == ("no such cluster", "cloud-eu")


async def test_why_not_a_cluster_that_is_like_none_lists_the_fleet_and_suggests_nothing(
    api: httpx.AsyncClient, world: World
) -> None:
    world.show(workload())
    world.state.latest[workload().uid] = decision()
    body = (await api.get("/v1/why-not/team-a/train/mars")).json()
    assert (body["near"], body["fix"]) == ([], "the fleet has cloud-eu, cloud-us, onprem-1")


async def test_why_not_before_any_decision_says_what_it_waits_for(api: httpx.AsyncClient, world: World) -> None:
    world.show(workload(quota_reserved_at=None))
    body = (await api.get("/v1/why-not/team-a/train/cloud-eu")).json()
    assert body["title"] == "not decided yet"
    assert "waiting for quota on the hub" in body["detail"]


# --- decisions, clusters, blueprint ------------------------------------------------------------------------------


async def test_a_decision_is_found_by_the_beginning_of_its_id(
    api: httpx.AsyncClient, world: World, store: SqlStore
) -> None:
    for number in (11, 12, 21):
        await store.commit(decision(number, key=f"team-a/job-{number}"), None, None)
    remembered = replace(decision(1, chosen=None), id=DecisionId("e123456789abcdef"))
    world.state.latest[remembered.workload] = remembered
    assert (await api.get("/v1/decisions/d00000000000002")).json()["id"] == "d000000000000021"
    assert (await api.get("/v1/decisions/e123")).json()["id"] == remembered.id
    several = await api.get("/v1/decisions/d00000000000001")
    assert (several.status_code, several.json()["title"]) == (409, "ambiguous id")
    assert several.json()["near"] == ["d000000000000011", "d000000000000012"]
    for unknown in ("d999", "d000000000000011x"):
        assert (await api.get(f"/v1/decisions/{unknown}")).status_code == 404, unknown
    for path in ("/v1/decisions/e12", "/v1/decisions/e12/inputs"):
        short = await api.get(path)
        assert (short.status_code, short.json()["title"]) == (400, "id too short"), path
        assert (
            short.json()["detail"]
            == "'e12' is too short for the beginning of an id: at least 4 letters of it are needed"
        )
        assert "write more of the id" in short.json()["fix"]


async def test_a_wait_that_says_the_same_again_is_told_under_the_id_of_its_record(
    api: httpx.AsyncClient, world: World, store: SqlStore
) -> None:
    """In memory it has an id of its own, which nothing keeps: whoever copies one must get the one that is kept."""
    recorded = decision(1, chosen=None, at=NOW - timedelta(minutes=3))
    again = replace(decision(2, chosen=None), workload=recorded.workload)
    world.show(workload())
    await store.commit(recorded, None, None)
    world.state.latest[workload().uid] = again
    why = (await api.get(f"/v1/why/{KEY}")).json()
    assert (why["decision"]["id"], why["decision"]["repeats"]) == (again.id, recorded.id)
    assert (await api.get(f"/v1/why-not/{KEY}/cloud-eu")).json()["decision"]["repeats"] == recorded.id
    assert (await api.get(f"/v1/decisions/{again.id}")).json()["repeats"] == recorded.id
    assert (await api.get(f"/v1/decisions/{recorded.id}")).json()["repeats"] is None
    inputs = (await api.get(f"/v1/decisions/{again.id}/inputs")).json()
    assert (inputs["title"], inputs["fix"]) == ("inputs not kept", f"entrepot replay {recorded.id}")
    world.state.latest[workload().uid] = replace(again, policy_digest="another")
    assert (await api.get(f"/v1/why/{KEY}")).json()["decision"]["repeats"] is None, "under other rules it is another"


async def test_decisions_are_listed_narrowed_and_shown_in_full(
    api: httpx.AsyncClient, store: SqlStore, world: World
) -> None:
    one, two, wait = decision(1), decision(2, chosen="cloud-eu"), decision(3, chosen=None)
    for record in (one, two, wait):
        await store.commit(record, None, None)

    async def ids(path: str) -> list[str]:
        return [d["id"] for d in (await api.get(path)).json()["items"]]

    assert await ids("/v1/decisions") == [wait.id, two.id, one.id]
    assert await ids("/v1/decisions?cluster=cloud-eu") == [two.id]
    assert await ids("/v1/decisions?outcome=wait&limit=5") == [wait.id]
    assert await ids("/v1/decisions/of/team-a/train?limit=2") == [wait.id, two.id]
    full = (await api.get(f"/v1/decisions/{one.id}")).json()
    assert (full["chosen"], full["request_digest"]) == ("onprem-1", "aaaaaaaaaaaaaaaa")
    assert full["candidates"][0]["terms"][0]["bill"][0]["source"] == "price book"
    unrecorded = decision(4, chosen=None)
    world.state.latest[unrecorded.workload] = unrecorded
    assert (await api.get(f"/v1/decisions/{unrecorded.id}")).status_code == 200
    assert (await api.get("/v1/decisions/d999")).json()["title"] == "no such decision"


async def test_clusters_are_all_listed_with_what_is_known_of_them(api: httpx.AsyncClient, world: World) -> None:
    placed = admitted_on("onprem-1")
    world.show(placed)
    local = copy_of(workload("x/local"), ours=False)
    seen = worker("onprem-1", copy_of(placed), local)
    stopped = replace(next(iter(seen.queues.values())), stop_policy=StopPolicy.HOLD)
    world.show_worker(replace(seen, queues={stopped.name: stopped}))
    world.show_worker(worker("cloud-us", seen_s=None, error="connection refused"))
    world.show_worker(worker("cloud-eu", seen_s=200))
    held = hold_of(decision())
    world.state.holds[held.workload] = (held,)
    body = (await api.get("/v1/clusters")).json()
    eu, us, home = body["items"]
    assert [c["link"] for c in body["items"]] == ["stale", "blind", "connected"]
    assert eu["text"] == "stale, seen 3m ago"
    assert us["text"] == "never seen: connection refused"
    assert (us["nodes"], us["running"]) == (None, None), "what was never seen is unknown, not zero"
    assert home["nodes"] == {"nodes": 2, "usable": 2, "gpus": 16, "gpus_free": 8, "gpus_yielding": 0}
    assert (home["running"], home["local"], home["holds"], home["held_gpus"]) == (1, 1, 1, 8)
    assert home["queues"][0]["stop_policy"] == "Hold"


async def test_a_cluster_that_only_the_blueprint_or_only_the_hub_knows_is_listed(
    api: httpx.AsyncClient, world: World
) -> None:
    shown = hub()
    clusters = {name: view for name, view in shown.clusters.items() if name != "cloud-us"}
    extra = replace(clusters[ClusterName("cloud-eu")], name=ClusterName("new"), active=False, message="no kubeconfig")
    world.hub.shown = replace(shown, clusters={**clusters, extra.name: extra})
    found = {c["name"]: c for c in (await api.get("/v1/clusters")).json()["items"]}
    assert found["cloud-us"]["multikueue_active"] is None
    assert (found["new"]["in_blueprint"], found["new"]["multikueue_reason"]) == (False, "no kubeconfig")


async def test_the_blueprint_shows_its_digest_and_why_an_edit_was_refused(api: httpx.AsyncClient, world: World) -> None:
    assert (await api.get("/v1/blueprint")).json()["ok"] is True
    error = "fleet.yaml:3:5: error: 'x': not a number"
    world.state.blueprint = BlueprintStatus("cccccccccccccccc", NOW, (error,), NOW)
    body = (await api.get("/v1/blueprint")).json()
    assert (body["ok"], body["errors"], body["digest"]) == (False, [error], "cccccccccccccccc")
