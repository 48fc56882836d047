"""A notebook on real clusters: idle, it gets its notice and is freed on hub and worker; used, it stays; its user starts
it again; the daemon may be killed in between, and may write nothing else on a Workload."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fleet import LocalFleet, rbac
from tests.fleet.api import ApiRefusal, KubeApi
from tests.local.daemon import Hub, Running, audited, is_ready, spawn, wait_for
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import SLICE, notebook
from tests.unit.deploy_files import manifests

pytestmark = pytest.mark.local
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
NAMESPACE, QUEUE, CLUSTER = "notebooks", "interactive", "onprem-eu"
TIMEOUT_S, NOTICE_S = 6, 6
PATIENCE_S = 180.0


@dataclass(slots=True)
class Notebook:
    """One notebook, and whoever watches it."""

    fleet: LocalFleet
    name: str

    @property
    def hub(self) -> Hub:
        return Hub(self.fleet)

    def workload(self) -> dict[str, Any]:
        found: dict[str, Any] = self.hub.workloads(NAMESPACE).get(self.name, {})
        return found

    def annotation(self, key: str) -> str:
        return str(self.workload().get("metadata", {}).get("annotations", {}).get(f"entrepot.dev/{key}", ""))

    def place(self) -> str:
        return str(self.workload().get("status", {}).get("clusterName") or "")

    def looked_at(self, used_s: float | None = None) -> None:
        """Somebody looks, and saw it used so many seconds ago; None: not since the last word of it."""
        now = datetime.now(UTC)
        said = {"entrepot.dev/activity-checked": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
        if used_s is not None:
            said["entrepot.dev/last-activity"] = f"{now - timedelta(seconds=used_s):%Y-%m-%dT%H:%M:%SZ}"
        with self.fleet.hub.api() as api:
            path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{self.name}"
            api.merge_patch(path, {"metadata": {"annotations": said}})

    def resume(self) -> None:
        """What its user does to start it again."""
        with self.fleet.hub.api() as api:
            path = f"{KUEUE}/namespaces/{NAMESPACE}/workloads/{self.workload()['metadata']['name']}"
            api.merge_patch(path, {"spec": {"active": True}})

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.hub.events(self.workload())]

    def slices(self) -> tuple[int, int]:
        """Slices that are reserved on the hub and on the worker."""
        return reserved(self.fleet.hub.api()), reserved(self.fleet.workers[CLUSTER].api())

    def copies(self) -> list[str]:
        return [n for n in self.hub.copies(NAMESPACE) if self.name in n]


def reserved(api: KubeApi) -> int:
    with api:
        status = api.request("GET", f"{KUEUE}/clusterqueues/{QUEUE}").get("status", {})
    flavors = status.get("flavorsReservation", [])
    return sum(int(r.get("total", 0)) for f in flavors for r in f["resources"] if r["name"] == SLICE)


@pytest.fixture(scope="module")
def blueprint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with timeouts that a test can wait for."""
    folder = tmp_path_factory.mktemp("idle") / "blueprint"
    shutil.copytree(CONFIG, folder)
    queues = folder / "queues.yaml"
    text = re.sub(r"idle_timeout: PT\w+", f"idle_timeout: PT{TIMEOUT_S}S", queues.read_text())
    queues.write_text(re.sub(r"idle_notice: PT\w+", f"idle_notice: PT{NOTICE_S}S", text))
    return folder


@pytest.fixture(scope="module")
def granted(local_fleet: LocalFleet) -> Iterator[None]:
    """deploy/interactive on the hub, and off again: other tests hold the daemon to less."""
    with local_fleet.hub.api() as api:
        for manifest in manifests("interactive"):
            api.apply(manifest)
        try:
            yield
        finally:
            for manifest in reversed(manifests("interactive")):
                api.request("DELETE", api.path_of(manifest), {})


@pytest.fixture(scope="module")
def running(
    local_fleet: LocalFleet, granted: None, blueprint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Running]]:
    """The daemon; a test that kills it puts its successor first."""
    found = [spawn(local_fleet, tmp_path_factory.mktemp("daemon"), blueprint)]
    try:
        wait_for(lambda: is_ready(found[0]), PATIENCE_S, lambda: found[0].log()[-3000:])
        yield found
    finally:
        for one in found:
            one.stop()


@contextlib.contextmanager
def started(fleet: LocalFleet, running: list[Running], name: str) -> Iterator[Notebook]:
    """A notebook that runs, and was used a moment ago."""
    found = Notebook(fleet, name)
    found.hub.create(notebook(name))
    try:
        wait_for(lambda: found.place() == CLUSTER, PATIENCE_S, lambda: running[0].log()[-3000:])
        found.looked_at(used_s=0)
        yield found
    finally:
        found.hub.delete(notebook(name))
        wait_for(lambda: not found.copies() and not found.workload(), PATIENCE_S)


def watched_until(found: Notebook, done: object, running: list[Running]) -> float:
    """Somebody looks every moment until something has happened, and never sees it used."""

    def look() -> bool:
        found.looked_at()
        return bool(done())  # type: ignore[operator]

    return wait_for(look, PATIENCE_S, lambda: running[0].log()[-3000:])


def test_an_idle_slice_is_freed_after_notice_through_a_kill_and_its_user_starts_it_again(
    local_fleet: LocalFleet, running: list[Running], blueprint: Path
) -> None:
    with started(local_fleet, running, "nb-idle") as found:
        wait_for(lambda: found.slices() == (1, 1), PATIENCE_S)
        watched_until(found, lambda: found.annotation("idle-notice"), running)
        notice = found.annotation("idle-notice")
        assert found.slices() == (1, 1), "nothing is freed before its notice has run out"
        wait_for(lambda: "IdleNotice" in found.reasons(), PATIENCE_S)
        running[0].kill()
        running.insert(0, spawn(local_fleet, running[0].folder, blueprint))
        watched_until(found, lambda: found.annotation("idle-ended"), running)
        ends, ended = (datetime.fromisoformat(t) for t in (notice.split("/")[1], found.annotation("idle-ended")))
        assert ended >= ends, f"freed at {ended}, before the notice {notice} ran out"
        wait_for(lambda: found.slices() == (0, 0), PATIENCE_S, lambda: running[0].log()[-3000:])
        wait_for(lambda: not found.copies(), PATIENCE_S)
        workload = found.workload()
        assert workload["spec"]["active"] is False
        assert "entrepot.dev/idle-notice" not in workload["metadata"]["annotations"]
        wait_for(lambda: "FreedAsIdle" in found.reasons(), PATIENCE_S)
        assert sorted(found.reasons()).count("IdleNotice") == 1
        told = running[0].get(f"/v1/why/{NAMESPACE}/nb-idle")["workload"]["idle"]
        assert (told["stage"], "Start it again" in told["text"]) == ("ended", True)
        found.resume()
        wait_for(lambda: found.place() == CLUSTER, PATIENCE_S, lambda: running[0].log()[-3000:])
        wait_for(lambda: found.slices() == (1, 1), PATIENCE_S)
        counted = found.workload()["status"].get("schedulingStats", {}).get("evictions", [])
        evictions = {entry["reason"]: int(entry["count"]) for entry in counted}
        assert evictions.pop("AdmissionCheck") == 1, "the attempt was ended once"
        assert set(evictions) <= {"Deactivated"}, "and what had ended was set inactive"


def test_use_during_the_notice_takes_it_back_and_the_notebook_runs_on(
    local_fleet: LocalFleet, running: list[Running]
) -> None:
    with started(local_fleet, running, "nb-used") as found:
        watched_until(found, lambda: found.annotation("idle-notice"), running)
        found.looked_at(used_s=0)
        wait_for(lambda: not found.annotation("idle-notice"), PATIENCE_S, lambda: running[0].log()[-3000:])
        assert (found.place(), found.annotation("idle-ended")) == (CLUSTER, "")
        wait_for(lambda: "IdleNoticeCancelled" in found.reasons(), PATIENCE_S)


def test_a_notebook_that_nobody_watches_any_more_is_left_alone(local_fleet: LocalFleet, running: list[Running]) -> None:
    with started(local_fleet, running, "nb-unwatched") as found:
        at = datetime.now(UTC)

        def told() -> dict[str, Any]:
            view: dict[str, Any] = running[0].get(f"/v1/why/{NAMESPACE}/nb-unwatched")["workload"]["idle"]
            return view

        wait_for(lambda: (datetime.now(UTC) - at).total_seconds() > TIMEOUT_S + NOTICE_S + 5, PATIENCE_S)
        assert (told()["stage"], found.place(), found.annotation("idle-notice")) == ("used", CLUSTER, "")


def test_every_step_is_in_the_audit_log_once(local_fleet: LocalFleet, running: list[Running]) -> None:
    entries = audited(running[0])
    courses = [dict(entry["detail"])["course"] for entry in entries if entry["kind"] == "idle"]
    assert courses == ["notice", "end", "notice", "cancel"]


BEYOND = [
    ("another annotation", {"metadata": {"annotations": {"kueue.x-k8s.io/job-owner-name": "x"}}}),
    ("a label", {"metadata": {"labels": {"kueue.x-k8s.io/multikueue-origin": "x"}}}),
    ("its owners", {"metadata": {"ownerReferences": []}}),
    ("its finalizers", {"metadata": {"finalizers": []}}),
    ("its priority", {"spec": {"priority": 100000}}),
    ("its priority with its end", {"spec": {"active": False, "priority": 100000}}),
]


@pytest.mark.parametrize(("what", "patch"), BEYOND, ids=[what for what, _ in BEYOND])
def test_the_daemons_account_may_write_nothing_else_on_a_workload(
    local_fleet: LocalFleet, granted: None, standing: str, what: str, patch: dict[str, Any]
) -> None:
    with local_fleet.hub.api() as admin:
        token = rbac.mint(admin, rbac.DAEMON, 3600)
    with (
        KubeApi(local_fleet.hub.server_url, token, local_fleet.hub.ca_pem) as api,
        pytest.raises(ApiRefusal, match="entrepot-interactive"),
    ):
        api.merge_patch(standing, patch)


def guarded(fleet: LocalFleet, path: str) -> bool:
    """Whether the apiserver acts on the policy, which takes it a moment after it was applied."""
    with fleet.hub.api() as admin:
        token = rbac.mint(admin, rbac.DAEMON, 3600)
    body, kind = {"metadata": {"labels": {"probe": "x"}}}, "application/merge-patch+json"
    with KubeApi(fleet.hub.server_url, token, fleet.hub.ca_pem) as api:
        try:
            api.request("PATCH", path, body, kind, dryRun="All")
        except ApiRefusal as refusal:
            return "entrepot-interactive" in str(refusal)
    return False


@pytest.fixture(scope="module")
def standing(local_fleet: LocalFleet, granted: None) -> Iterator[str]:
    """The path of a Workload that waits for nobody."""
    found = Notebook(local_fleet, "nb-standing")
    found.hub.create(notebook("nb-standing"))
    try:
        wait_for(lambda: bool(found.workload()), PATIENCE_S)
        path = f"{KUEUE}/namespaces/{NAMESPACE}/workloads/{found.workload()['metadata']['name']}"
        wait_for(lambda: guarded(local_fleet, path), PATIENCE_S)
        yield path
    finally:
        found.hub.delete(notebook("nb-standing"))


def test_without_the_component_the_log_says_what_to_add_and_nothing_is_freed(
    local_fleet: LocalFleet, blueprint: Path, running: list[Running], tmp_path: Path
) -> None:
    """Last: the right is taken away while the daemon runs."""
    role, binding = manifests("interactive")[:2]
    with started(local_fleet, running, "nb-refused") as found, local_fleet.hub.api() as api:
        api.request("DELETE", api.path_of(binding), {})

        def refused() -> float:
            text = httpx.get(f"{running[0].server}/metrics", timeout=10.0, trust_env=False).text
            sample = r'entrepot_idle_writes_total\{course="notice",result="refused"\} ([0-9.]+)'
            match = re.search(sample, text)
            return float(match.group(1)) if match is not None else 0.0

        try:
            watched_until(found, refused, running)
            assert "add deploy/interactive" in running[0].log()
            assert (found.place(), found.annotation("idle-notice")) == (CLUSTER, "")
        finally:
            api.apply(role)
            api.apply(binding)
