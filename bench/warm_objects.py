"""A hub with thousands of Workloads, as Kueue and MultiKueue leave them, made through the API; and the store to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, insert

from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.ports import Intent, IntentState
from dispatcher.store import SqlStore, open_store
from dispatcher.store.sql import _decision_row, _hold_row, _intent_row
from dispatcher.store.tables import decisions, holds, intents
from tests.builders import Manifest
from tests.fleet import LocalFleet
from tests.fleet.api import KubeApi
from tests.loops.jobs import gang
from tests.unit import records

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
CHECK, CLUSTER = "entrepot", "onprem-eu"
WRITERS = 8


class State(StrEnum):
    FINISHED = "finished"
    PLACED = "placed"
    NOMINATED = "nominated"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Made:
    """One Workload on the hub."""

    namespace: str
    name: str
    job: str
    uid: str
    state: State


def silence_kueue(fleet: LocalFleet) -> None:
    """Stop the hub's Kueue and take its webhooks away: from now on Workloads are what we write, and stay so."""
    fleet.end_process("hub-kueue")
    with fleet.hub.api() as api:
        for kind in ("validating", "mutating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            for found in api.request("GET", path)["items"]:
                api.request("DELETE", f"{path}/{found['metadata']['name']}")


def make(fleet: LocalFleet, states: Sequence[State], prefix: str) -> list[Made]:
    """One Job and its Workload for each state, as fast as the hub takes them."""
    numbered = list(enumerate(states))

    def some(part: list[tuple[int, State]]) -> list[Made]:
        with fleet.hub.api() as api:
            return [make_one(api, f"{prefix}-{number:05d}", state) for number, state in part]

    with ThreadPoolExecutor(WRITERS) as pool:
        parts = pool.map(some, [numbered[start::WRITERS] for start in range(WRITERS)])
        return sorted((made for part in parts for made in part), key=lambda made: made.name)


def make_one(api: KubeApi, job: str, state: State, manifest: Manifest | None = None) -> Made:
    """A Job, its Workload, and the Workload's status."""
    wanted = manifest or _manifest(job, state)
    wanted["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    namespace = wanted["metadata"]["namespace"]
    owner = api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", wanted)
    path = WORKLOADS.format(namespace)
    created = api.request("POST", path, _workload(wanted, owner))
    name = created["metadata"]["name"]
    status = _status(wanted, state, created["metadata"]["creationTimestamp"])
    api.merge_patch(f"{path}/{name}/status", {"status": status})
    return Made(namespace, name, job, created["metadata"]["uid"], state)


def _manifest(job: str, state: State) -> Manifest:
    """Those that have a cluster are tiny, so that their promises leave room for the one that is measured; those that
    wait never fit, so that they are decided on each time."""
    manifest = gang(job, pods=40 if state is State.WAITING else 1, gpus=8 if state is State.WAITING else 0)
    if state is not State.WAITING:
        resources = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
        resources["requests"], resources["limits"] = {"cpu": "1m"}, {}
    return manifest


def _workload(job: Manifest, owner: Mapping[str, Any]) -> Manifest:
    name = job["metadata"]["name"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["metadata"]["uid"]}
    template = {
        "metadata": {"labels": {"batch.kubernetes.io/job-name": name}},
        "spec": job["spec"]["template"]["spec"],
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": job["metadata"]["namespace"],
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "active": True,
            "queueName": job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
            "priority": 0,
            "podSets": [{"name": "main", "count": job["spec"]["parallelism"], "template": template}],
        },
    }


def _status(job: Manifest, state: State, at: str) -> dict[str, Any]:
    requests = job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    placed = state in (State.PLACED, State.FINISHED)
    assignment = {
        "name": "main",
        "count": job["spec"]["parallelism"],
        "flavors": dict.fromkeys(requests, "fleet"),
        "resourceUsage": requests,
    }
    kinds = ["QuotaReserved"] + ["Admitted"] * placed + ["Finished"] * (state is State.FINISHED)
    check = {"name": CHECK, "state": "Ready" if placed else "Pending", "lastTransitionTime": at, "message": ""}
    return {
        "admission": {"clusterQueue": "autonomy-training", "podSetAssignments": [assignment]},
        "admissionChecks": [check],
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at} for kind in kinds
        ],
        **({"clusterName": CLUSTER} if placed else {}),
        **({"nominatedClusterNames": [CLUSTER]} if state is State.NOMINATED else {}),
    }


async def remember(target: Path, made: Sequence[Made]) -> None:
    """A store as the daemon that placed them would have left it: a decision each, and the holds of the nominated."""
    store: SqlStore = await open_store(target)
    await store.close()
    engine = create_engine(f"sqlite:///{target}")
    for part in _parts(list(enumerate(made)), 500):
        rows: dict[str, list[dict[str, Any]]] = {"decisions": [], "holds": [], "intents": []}
        for number, one in part:
            _remember_one(number, one, rows)
        with engine.begin() as connection:
            for table in (decisions, holds, intents):
                if rows[table.name]:
                    connection.execute(insert(table), rows[table.name])
    engine.dispose()


def _remember_one(number: int, one: Made, rows: dict[str, list[dict[str, Any]]]) -> None:
    waits = one.state is State.WAITING
    plain = records.decision(number, job=one.job, chosen=None if waits else CLUSTER, at=datetime.now(UTC))
    decision = replace(
        plain,
        id=DecisionId(f"warm{number:012d}"),
        workload=WorkloadUid(one.uid),
        key=f"{one.namespace}/{one.name}",
        resource_version=str(number),
    )
    rows["decisions"].append(_decision_row(decision))
    if waits:
        return
    intent = Intent(decision.id, decision.workload, (ClusterName(CLUSTER),), IntentState.WRITTEN, decision.decided_at)
    rows["intents"].append(_intent_row(intent, decision))
    if one.state is State.NOMINATED:
        hold = replace(records.hold_of(decision), usage=())
        rows["holds"].append(_hold_row(hold))


def _parts(rows: list[tuple[int, Made]], size: int) -> Iterator[list[tuple[int, Made]]]:
    rest = iter(rows)
    while part := list(islice(rest, size)):
        yield part
