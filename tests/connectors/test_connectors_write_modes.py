"""The probe at start-up: on a hub without the policy, how Kueue answers it decides how nominations are written."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from connectors.kubernetes import connect_hub
from connectors.kubernetes.hub import LOOK_S
from connectors.kubernetes.write_modes import PROBE, PROBE_NAMESPACE, probe_body
from dispatcher.core.errors import Conflict, Refused
from dispatcher.core.ids import ClusterName, WorkloadUid
from dispatcher.core.ports import Nomination
from dispatcher.core.writing import UnsafeMode, WriteMode
from tests.connectors.apiserver import KUEUE, ApiServer, always
from tests.connectors.support import EagerClock, write
from tests.connectors.test_connectors_preflight import BINDINGS, POLICIES, SERVED, allow, binding, policy
from tests.unit.test_nomination_modes import condition, managed, workload

WORKLOADS = f"{KUEUE}/namespaces/{PROBE_NAMESPACE}/workloads"
ONE = f"{WORKLOADS}/{PROBE}"


class ProbedHub:
    """A hub whose Kueue answers the probe as `answer` says; None: it says nothing."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.answer: tuple[str, str] | None = ("kueue-admission", "Apply")
        self.clears = False
        self.exists = False
        self.made = self.deleted = 0
        api.faults["POST", WORKLOADS] = self._create
        api.faults["DELETE", ONE] = self._delete
        api.faults["GET", WORKLOADS] = self._list
        api.faults["PATCH", f"{ONE}/status"] = self._patch

    async def _create(self, request: web.Request) -> web.StreamResponse:
        assert await request.json() == probe_body()
        if self.exists:
            return web.json_response({"message": "already exists"}, status=409)
        self.exists, self.made = True, self.made + 1
        return web.json_response(probe_body(), status=201)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        self.exists, self.deleted = False, self.deleted + 1
        return web.json_response({})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        assert request.query["fieldSelector"] == f"metadata.name={PROBE}"
        found: dict[str, Any] = copy.deepcopy(probe_body())
        if self.answer is not None:
            found["metadata"]["managedFields"] = [managed(*self.answer, "QuotaReserved")]
            found["status"] = {"conditions": [condition("QuotaReserved", "False")]}
        return web.json_response({"items": [found] if self.exists else []})

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        assert request.query["dryRun"] == "All", "nothing may be written"
        status = (await request.json())["status"]
        assert [c["type"] for c in status["conditions"]] == ["QuotaReserved", "Evicted"]
        return web.json_response({"status": {"nominatedClusterNames": [] if self.clears else [PROBE]}})


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer("hub") as server:
        server.serve(POLICIES, BINDINGS, f"{KUEUE}/workloads")
        server.extra[KUEUE] = {"resources": [{"name": name, "kind": "X"} for name in (*SERVED, "workloads/status")]}
        allow(server)
        yield server


@pytest.fixture
def probed(api: ApiServer) -> ProbedHub:
    return ProbedHub(api)


async def settled(api: ApiServer, path: Path) -> WriteMode:
    hub = connect_hub(write(path / "config", api.kubeconfig()), EagerClock())
    try:
        await hub.check_ready()
        return hub.write_mode
    finally:
        await hub.close()


ANSWERS = {
    "by apply: the gate is off": (("kueue-admission", "Apply"), WriteMode.FULL_REPLICA),
    "by a plain update: the gate is on": (("kueue", "Update"), WriteMode.MERGE_PATCH_GATE),
    "not at all: nothing is known": (None, WriteMode.FULL_REPLICA),
}


@pytest.mark.parametrize(("answer", "mode"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_the_answer_decides_and_the_probe_is_deleted(
    probed: ProbedHub, tmp_path: Path, answer: tuple[str, str] | None, mode: WriteMode
) -> None:
    probed.answer = answer
    assert await settled(probed.api, tmp_path) is mode
    assert (probed.made, probed.deleted, probed.exists) == (1, 1, False)


async def test_a_policy_that_cannot_be_seen_but_works_is_used(probed: ProbedHub, tmp_path: Path) -> None:
    """Another name, another group: what counts is that an eviction empties our list."""
    probed.clears = True
    assert await settled(probed.api, tmp_path) is WriteMode.CLEARING_POLICY


async def test_a_probe_left_by_a_killed_start_is_replaced(probed: ProbedHub, tmp_path: Path) -> None:
    probed.exists = True
    await settled(probed.api, tmp_path)
    assert (probed.made, probed.deleted, probed.exists) == (1, 2, False)


@pytest.mark.parametrize("status", [403, 404, 422, 500])
async def test_a_probe_that_cannot_be_made_is_no_reason_to_stop(api: ApiServer, tmp_path: Path, status: int) -> None:
    api.faults["POST", WORKLOADS] = always(status, "no")
    assert await settled(api, tmp_path) is WriteMode.FULL_REPLICA


async def test_a_dry_run_that_is_refused_leaves_the_policy_unknown(probed: ProbedHub, tmp_path: Path) -> None:
    probed.api.faults["PATCH", f"{ONE}/status"] = always(403, "no")
    assert await settled(probed.api, tmp_path) is WriteMode.FULL_REPLICA
    assert not probed.exists


async def test_a_mode_that_was_asked_for_and_is_not_allowed_any_more_nominates_nothing_until_it_is(
    api: ApiServer, tmp_path: Path
) -> None:
    """Somebody takes Kueue's policy away under a daemon that was told to count on it."""
    clock, written = EagerClock(), serve_one(api, workload())
    api.put(POLICIES, policy())
    api.put(BINDINGS, binding())
    config = write(tmp_path / "config", api.kubeconfig())
    hub = connect_hub(config, clock, write_mode=WriteMode.CLEARING_POLICY)
    nomination = Nomination(WorkloadUid("uid-1"), "autonomy", "job-train-a", "77", (ClusterName("w1"),))
    try:
        await hub.check_ready()
        await hub.nominate(nomination)
        assert len(written) == 1
        api.delete(BINDINGS, "clear-binding")
        with pytest.raises(UnsafeMode):
            await hub.check_ready()
        looks = len(api.requests("LIST", BINDINGS))
        for _ in range(3):
            with pytest.raises(Refused, match=r"not in force.*apply Kueue's config/components/map"):
                await hub.nominate(nomination)
        assert (len(written), len(api.requests("LIST", BINDINGS))) == (1, looks), "it is not asked at each of them"
        api.put(BINDINGS, binding())
        await clock.sleep(LOOK_S)
        await hub.nominate(nomination)
        assert len(written) == 2
    finally:
        await hub.close()


# --- the write in replica mode -----------------------------------------------------------------------------------

MINE = f"{KUEUE}/namespaces/autonomy/workloads"


async def replicate(api: ApiServer, path: Path, version: str = "77") -> str:
    hub = connect_hub(write(path / "config", api.kubeconfig()), EagerClock(), write_mode=WriteMode.FULL_REPLICA)
    try:
        return await hub.nominate(
            Nomination(WorkloadUid("uid-1"), "autonomy", "job-train-a", version, (ClusterName("w1"),))
        )
    finally:
        await hub.close()


def serve_one(api: ApiServer, *items: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Answer the read with `items`; returns what is patched, with its content type."""
    written: list[tuple[str, dict[str, Any]]] = []

    async def read(request: web.Request) -> web.StreamResponse:
        return web.json_response({"items": list(items)})

    async def patch(request: web.Request) -> web.StreamResponse:
        written.append((request.headers["Content-Type"], await request.json()))
        return web.json_response({**workload(), "metadata": {**workload()["metadata"], "resourceVersion": "78"}})

    api.faults["GET", MINE] = read
    api.faults["PATCH", f"{MINE}/job-train-a/status"] = patch
    return written


async def test_a_replica_is_read_and_applied_in_one_go(api: ApiServer, tmp_path: Path) -> None:
    written = serve_one(api, workload())
    assert await replicate(api, tmp_path) == "78"
    assert [kind for kind, _ in written] == ["application/apply-patch+yaml"]
    assert written[0][1]["status"]["nominatedClusterNames"] == ["w1"]
    assert written[0][1]["status"]["admission"] == workload()["status"]["admission"]


@pytest.mark.parametrize(("items", "version"), [((), "77"), ((workload(),), "76")], ids=["it is gone", "it is newer"])
async def test_a_replica_of_what_has_changed_is_a_conflict_and_is_not_sent(
    api: ApiServer, tmp_path: Path, items: tuple[dict[str, Any], ...], version: str
) -> None:
    written = serve_one(api, *items)
    with pytest.raises(Conflict):
        await replicate(api, tmp_path, version)
    assert written == []
