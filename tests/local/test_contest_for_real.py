"""Kueue's own shares and preemption on real clusters, followed and not fought (the scene of tests/contest.py).

The daemon runs under the RBAC of `deploy/`. A watcher looks at all workers all the time: nothing of ours may have pods
on two of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from dispatcher.config import load_blueprint
from dispatcher.config.render import render
from dispatcher.runtime import SystemClock
from tests.contest import CLUSTERS, FLAVOR, GPUS, LABEL, PREFIX, QUEUES, blueprint, of_the_scene, on_the_hub, work
from tests.fleet import Endpoint, FleetNode, LocalFleet
from tests.local.daemon import Hub, Running, condition, daemon, decided, wait_for

pytestmark = pytest.mark.local
SOON_S = 90.0
STILL_S = 12.0
HOME, FINLAND, OHIO = CLUSTERS


@dataclass(slots=True)
class Watcher:
    """Looks where pods of the scene are, on all workers, until it is stopped."""

    fleet: LocalFleet
    looks: int = 0
    twice: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        apis = {name: endpoint.api() for name, endpoint in self.fleet.workers.items()}
        while not self._over.wait(0.2):
            places: dict[str, set[str]] = {}
            for name, api in apis.items():
                for pod in api.request("GET", "/api/v1/pods")["items"]:
                    job = pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", "")
                    ours = pod["metadata"]["namespace"].startswith(PREFIX)
                    if ours and job and pod.get("status", {}).get("phase") == "Running":
                        places.setdefault(f"{pod['metadata']['namespace']}/{job}", set()).add(name)
            self.twice += [f"{job}: {sorted(where)}" for job, where in places.items() if len(where) > 1]
            self.looks += 1
        for api in apis.values():
            api.close()

    def stop(self) -> None:
        self._over.set()


@dataclass(slots=True)
class Scene:
    fleet: LocalFleet
    hub: Hub
    running: Running
    made: list[dict[str, Any]] = field(default_factory=list)

    def submit(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            self.hub.create(manifest)
            self.made.append(manifest)

    def workload(self, queue: str, job: str) -> dict[str, Any]:
        return self.hub.workloads(PREFIX + queue).get(job, {})

    def cluster(self, queue: str, job: str) -> str:
        return str(self.workload(queue, job).get("status", {}).get("clusterName") or "")

    def runs(self, queue: str, job: str) -> str:
        """Where its pods run, as the worker's Kueue and the daemon see it."""
        if not self.cluster(queue, job):
            return ""
        state = self.why(queue, job)["workload"]["state"]
        return self.cluster(queue, job) if state["code"] == "running" else ""

    def until_runs(self, queue: str, *jobs: str) -> list[str]:
        wait_for(lambda: all(self.runs(queue, job) for job in jobs), SOON_S, lambda: self.tell(queue, *jobs))
        return [self.runs(queue, job) for job in jobs]

    def why(self, queue: str, job: str) -> dict[str, Any]:
        return decided(self.running, PREFIX + queue, job)

    def candidate(self, queue: str, job: str, cluster: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            c for c in self.why(queue, job)["decision"]["candidates"] if c["cluster"] == cluster
        )
        return found

    def history(self, queue: str, job: str) -> list[dict[str, Any]]:
        return [found for found in self.why(queue, job)["history"] if found["chosen"] is not None]

    def events(self, queue: str, job: str, reason: str) -> list[str]:
        return [e["message"] for e in self.hub.events(self.workload(queue, job)) if e["reason"] == reason]

    def condition(self, queue: str, job: str, kind: str) -> bool:
        found = self.workload(queue, job)
        return bool(found) and condition(found, kind)

    def tell(self, queue: str, *jobs: str) -> str:
        told = [f"{job}: {self.workload(queue, job).get('status')}" for job in jobs]
        return "\n".join([*told, self.running.log()[-2500:]])

    def clear(self) -> None:
        """Delete what a test has submitted and wait until the workers are empty again."""
        for manifest in self.made:
            self.hub.delete(manifest)
        self.made.clear()
        namespaces = [PREFIX + queue for queue in QUEUES]
        wait_for(lambda: not any(self.hub.copies(namespace) for namespace in namespaces), SOON_S)
        wait_for(lambda: not any(self.hub.workloads(namespace) for namespace in namespaces), SOON_S)


@pytest.fixture(scope="module")
def stage(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("contest")
    plan = blueprint(folder / "blueprint")
    loaded = load_blueprint(plan, SystemClock().now())
    assert loaded.blueprint is not None, [problem.text() for problem in loaded.errors]
    rendered = render(loaded.blueprint)
    added = {name: of_the_scene(rendered.workers[name]) for name in local_fleet.workers}  # type: ignore[index]
    added_to_hub = on_the_hub(of_the_scene(rendered.hub))
    for name, endpoint in local_fleet.workers.items():
        with endpoint.api() as api:
            api.apply_all(added[name])
        capacity = {"cpu": "192", "memory": "2Ti", "nvidia.com/gpu": str(GPUS)}
        local_fleet.add_nodes(name, [FleetNode(f"{name}-{FLAVOR}", LABEL, (), capacity)])
    with local_fleet.hub.api() as api:
        api.apply_all(added_to_hub)
    try:
        with daemon(local_fleet, folder / "daemon", plan) as running:
            yield Scene(local_fleet, Hub(local_fleet), running)
    finally:
        for name, endpoint in local_fleet.workers.items():
            local_fleet.remove_nodes(name, [f"{name}-{FLAVOR}"])
            take_away(endpoint, added[name])
        take_away(local_fleet.hub, added_to_hub)


def take_away(endpoint: Endpoint, added: list[dict[str, Any]]) -> None:
    """The fleet is every test's: what another finds there is what the example renders. Empty namespaces are nothing."""
    with endpoint.api() as api:
        api.delete_all([item for item in added if item["kind"] != "Namespace"], SOON_S)


@pytest.fixture
def scene(stage: Scene) -> Iterator[Scene]:
    watcher = Watcher(stage.fleet)
    looking = threading.Thread(target=watcher.run)
    looking.start()
    try:
        yield stage
    finally:
        watcher.stop()
        looking.join()
        stage.clear()
    assert watcher.looks > 0
    assert watcher.twice == [], "something ran twice"


def test_a_reclaim_in_a_cohort_of_a_worker_is_followed(scene: Scene) -> None:
    scene.submit(work("borrower", "borrowers", HOME, FINLAND))
    (first,) = scene.until_runs("borrowers", "borrower")
    other = HOME if first == FINLAND else FINLAND
    scene.submit(work("owner", "lenders", first))
    assert scene.until_runs("lenders", "owner") == [first]
    chosen = scene.candidate("lenders", "owner", first)
    key = f"{PREFIX}borrowers/{scene.workload('borrowers', 'borrower')['metadata']['name']}"
    assert (chosen["chosen"], chosen["fit"]) == (True, "by-preemption")
    assert [(v["key"], v["reclaimed"]) for v in chosen["preempts"]] == [(key, True)]
    assert scene.until_runs("borrowers", "borrower") == [other]
    assert [found["chosen"] for found in scene.history("borrowers", "borrower")] == [other, first]
    (message,) = scene.events("borrowers", "borrower", "ReclaimedOnWorker")
    assert "InCohortReclamation" in message
    reasons = {r["reason"] for r in scene.candidate("borrowers", "borrower", first)["rejections"]}
    assert "reclaimed" in reasons


def test_what_was_taken_back_is_not_sent_back_while_it_would_be_taken_again(scene: Scene) -> None:
    """The owner's work ends, the node is free, and the borrower still waits: the next owner starts at once."""
    scene.submit(work("borrower", "borrowers", HOME))
    scene.until_runs("borrowers", "borrower")
    scene.submit(work("owner", "lenders", HOME, duration="8s"))
    wait_for(lambda: scene.condition("lenders", "owner", "Finished"), SOON_S, lambda: scene.tell("lenders", "owner"))
    until = time.monotonic() + STILL_S
    while time.monotonic() < until:
        assert not scene.workload("borrowers", "borrower")["status"].get("nominatedClusterNames")
        assert not scene.cluster("borrowers", "borrower")
        time.sleep(0.5)
    found = scene.candidate("borrowers", "borrower", HOME)
    assert (found["fit"], [r["reason"] for r in found["rejections"]]) == ("now", ["reclaimed"])
    scene.submit(work("next", "lenders", HOME))
    assert scene.until_runs("lenders", "next") == [HOME]
    assert len(scene.history("borrowers", "borrower")) == 1


def test_a_reclaim_in_a_cohort_of_the_hub_is_followed(scene: Scene) -> None:
    scene.submit(work("borrower", "hub-borrowers", HOME, FINLAND))
    scene.until_runs("hub-borrowers", "borrower")
    scene.submit(work("owner", "hub-lenders", HOME, FINLAND, duration="20s"))
    wait_for(
        lambda: bool(scene.events("hub-borrowers", "borrower", "PreemptedOnHub")),
        SOON_S,
        lambda: scene.tell("hub-borrowers", "borrower"),
    )
    assert "InCohortReclamation" in scene.events("hub-borrowers", "borrower", "PreemptedOnHub")[0]
    scene.until_runs("hub-lenders", "owner")
    why = scene.why("hub-borrowers", "borrower")
    assert [found["code"] for found in why["findings"]] == ["hub-preempted"]
    assert not scene.condition("hub-borrowers", "borrower", "QuotaReserved")
    scene.until_runs("hub-borrowers", "borrower")
    assert scene.condition("hub-lenders", "owner", "Finished")
    assert scene.events("hub-borrowers", "borrower", "EvictedOnWorker") == []
    assert len(scene.history("hub-borrowers", "borrower")) == 2


def test_a_job_that_needs_a_preemption_is_nominated_where_it_costs_least(scene: Scene) -> None:
    """Everything is full. Of four, of two and of one who would have to go, each restarts for half an hour."""
    filling = {HOME: (4, 2), FINLAND: (2, 4), OHIO: (1, 8)}
    names = {cluster: [f"{cluster}-{n}" for n in range(count)] for cluster, (count, _) in filling.items()}
    for cluster, (_, gpus) in filling.items():
        scene.submit(*(work(name, "lenders", cluster, gpus=gpus) for name in names[cluster]))
    scene.until_runs("lenders", *(name for of in names.values() for name in of))
    scene.submit(work("urgent", "lenders", priority="release-gate", says={"expected-duration": "PT10M"}))
    (where,) = scene.until_runs("lenders", "urgent")
    candidates = [scene.candidate("lenders", "urgent", cluster) for cluster in filling]
    assert {c["fit"] for c in candidates} == {"by-preemption"}
    least = min(candidates, key=lambda c: c["total"]["usd_micro"])
    assert (least["cluster"], least["chosen"]) == (where, True)
    lost = {
        c["cluster"]: [t["amount"]["usd_micro"] for t in c["terms"] if t["kind"] == "preemption"] for c in candidates
    }
    assert lost[OHIO] < lost[HOME], "one restart costs less than four"
    said = {victim["key"].partition("/")[2] for victim in least["preempts"]}
    stopped = {
        scene.workload("lenders", job)["metadata"]["name"]
        for of in names.values()
        for job in of
        if scene.events("lenders", job, "EvictedOnWorker")
    }
    assert said == stopped, "Kueue stopped whom the decision named, and nobody else"
    assert len(scene.history("lenders", "urgent")) == 1


def test_whom_the_decision_names_is_whom_kueue_stops(scene: Scene) -> None:
    """Six of the owner's eight GPUs are in use, two are lent, and four are asked for: what is lent comes back, then
    the newest of the lowest priority gives way. Older work, and work of more priority, stays."""
    for name, queue, priority in (
        ("old", "lenders", "research"),
        ("dear", "lenders", "production"),
        ("borrower", "borrowers", "production"),
        ("new", "lenders", "research"),
    ):
        scene.submit(work(name, queue, HOME, gpus=2, priority=priority))
        scene.until_runs(queue, name)
    scene.submit(work("urgent", "lenders", HOME, gpus=4, priority="release-gate"))
    assert scene.until_runs("lenders", "urgent") == [HOME]
    victims = scene.candidate("lenders", "urgent", HOME)["preempts"]
    said = [(victim["key"].partition("/")[2].rpartition("-")[0], victim["reclaimed"]) for victim in victims]
    assert said == [("job-borrower", True), ("job-new", False)]
    wait_for(lambda: bool(scene.events("borrowers", "borrower", "ReclaimedOnWorker")), SOON_S)
    wait_for(lambda: bool(scene.events("lenders", "new", "EvictedOnWorker")), SOON_S)
    assert [scene.runs("lenders", name) for name in ("old", "dear")] == [HOME, HOME]
