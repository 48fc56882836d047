"""The life of rules on real clusters: work goes only where it is legal, waits where nowhere is, starts by itself, and
is ended exactly once through the hub when a bundle makes it illegal, while it waits and while it runs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fleet import LocalFleet
from tests.local.daemon import Hub, Running, audited, condition, decided, is_ready, spawn, wait_for
from tests.local.fleet_objects import CONFIG
from tests.loops.jobs import H100, gang

pytestmark = pytest.mark.local
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE = f"{KUEUE}/clusterqueues/autonomy-training"
MERGE = "application/merge-patch+json"
RULE = "not-for-now"
DE, FI, FR, US = "DE", "FI", "FR", "US"
OURS = ("law-legal", "law-waits", "law-stop", "law-nominated")
PATIENCE_S = 180.0
"""Each step takes seconds; a machine that does much else at the same time may take longer."""


@dataclass(slots=True)
class Rules:
    """The example's rules and one more that forbids internal data in some countries, in the daemon's own folder."""

    folder: Path

    def forbid(self, *countries: str, running: str = "stop_now", queued: str = "requeue") -> None:
        text = (
            f"rules:\n  {RULE}:\n    labels: [internal]\n    flows: [process, cache]\n    effect: forbid\n"
            f"    when:\n      destination.country: {{in: [{', '.join(countries)}]}}\n"
            "    exceptable: {approvers: [data-office]}\n"
            f"    on_change: {{running: {running}, queued: {queued}}}\n"
        )
        self._write("for-now.yaml", text)

    def withdraw(self) -> None:
        """The exception is gone."""
        (self.folder / "residency" / "exception.yaml").unlink()

    def grant(self) -> None:
        """An exception for one queue on one cluster, for a day."""
        now = datetime.now(UTC)
        since, until = (f"{now + timedelta(hours=h):%Y-%m-%dT%H:%M:%SZ}" for h in (-1, 24))
        text = (
            f"exceptions:\n  for-a-day:\n    rules: [{RULE}]\n"
            "    scope: {queues: [autonomy-training], clusters: [onprem-eu]}\n    reason: A test.\n    ticket: T-1\n"
            "    requested_by: asker\n    approved_by: granter\n    approver_role: data-office\n"
            f"    valid: {{from: {since}, until: {until}}}\n"
        )
        self._write("exception.yaml", text)

    def _write(self, name: str, text: str) -> None:
        half = self.folder / "half"
        half.write_text(text)
        half.replace(self.folder / "residency" / name)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Rules:
    folder = tmp_path_factory.mktemp("rules") / "blueprint"
    shutil.copytree(CONFIG, folder)
    return Rules(folder)


@pytest.fixture(scope="module")
def running(local_fleet: LocalFleet, rules: Rules, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    rules.forbid(FI, FR, US)
    found = spawn(local_fleet, tmp_path_factory.mktemp("daemon"), rules.folder)
    try:
        wait_for(lambda: is_ready(found), PATIENCE_S, lambda: found.log()[-3000:])
        yield found
    finally:
        found.stop()


@pytest.fixture
def hub(local_fleet: LocalFleet) -> Hub:
    return Hub(local_fleet)


def reader(name: str, duration: str = "3s") -> dict[str, Any]:
    return gang(name, product=H100, duration=duration, says={"datasets": "radar-2026"})


def loaded(running: Running, since: str) -> None:
    """Wait until the daemon rules by other files than before."""
    wait_for(lambda: str(running.get("/v1/blueprint")["digest"]) != since, PATIENCE_S, lambda: running.log()[-2000:])


def digest(running: Running) -> str:
    return str(running.get("/v1/blueprint")["digest"])


def place(hub: Hub, name: str) -> str:
    return str(hub.workloads("autonomy").get(name, {}).get("status", {}).get("clusterName") or "")


def evictions(hub: Hub, name: str) -> int:
    """How often Kueue has evicted a Workload because of its check, by its own count."""
    stats = hub.workloads("autonomy")[name]["status"].get("schedulingStats", {}).get("evictions", [])
    return sum(int(entry.get("count", 0)) for entry in stats)


def waits(hub: Hub, name: str) -> bool:
    """It has quota again and no cluster: it waits for one."""
    found = hub.workloads("autonomy").get(name)
    if found is None or condition(found, "Evicted") or not condition(found, "QuotaReserved"):
        return False
    return not found["status"].get("clusterName") and not found["status"].get("nominatedClusterNames")


def asked(running: Running) -> float:
    text = httpx.get(f"{running.server}/metrics", timeout=10.0, trust_env=False).text
    found = re.search(r'entrepot_law_evictions_total\{result="asked"\} ([0-9.]+)', text)
    return float(found.group(1)) if found is not None else 0.0


def test_classified_work_goes_only_where_it_is_legal(hub: Hub, running: Running) -> None:
    seen: set[str] = set()
    hub.create(reader("law-legal"))

    def done() -> bool:
        for name, clusters in hub.copies("autonomy").items():
            if "law-legal" in name:
                seen.update(clusters)
        return hub.finished("autonomy", ["law-legal"])

    wait_for(done, PATIENCE_S, lambda: running.log()[-2000:])
    assert seen <= {"onprem-eu"}
    assert decided(running, "autonomy", "law-legal")["decision"]["chosen"] == "onprem-eu"


def test_it_waits_with_its_reason_and_starts_by_itself_after_the_exception(
    hub: Hub, running: Running, rules: Rules
) -> None:
    before = digest(running)
    rules.forbid(DE, FI, FR, US)
    loaded(running, before)
    hub.create(reader("law-waits"))
    wait_for(lambda: "law-waits" in hub.workloads("autonomy"), PATIENCE_S)
    workload = hub.workloads("autonomy")["law-waits"]
    wait_for(lambda: any(RULE in event["message"] for event in hub.events(workload)), PATIENCE_S)
    assert place(hub, "law-waits") == ""
    rules.grant()
    wait_for(lambda: hub.finished("autonomy", ["law-waits"]), PATIENCE_S, lambda: running.log()[-2000:])
    assert decided(running, "autonomy", "law-waits")["decision"]["chosen"] == "onprem-eu"


def test_stop_now_ends_running_work_exactly_once_and_it_comes_back_by_itself(
    hub: Hub, running: Running, rules: Rules
) -> None:
    rules.forbid(FI, FR, US)
    rules.withdraw()
    hub.create(reader("law-stop", duration="600s"))
    wait_for(lambda: place(hub, "law-stop") == "onprem-eu", PATIENCE_S, lambda: running.log()[-2000:])
    before, counted = digest(running), asked(running)
    rules.forbid(DE, FI, FR, US)
    loaded(running, before)
    wait_for(lambda: waits(hub, "law-stop"), PATIENCE_S, lambda: running.log()[-2000:])
    wait_for(lambda: not any("law-stop" in name for name in hub.copies("autonomy")), PATIENCE_S)
    assert (asked(running) - counted, evictions(hub, "law-stop")) == (1, 1)
    rules.forbid(FI, FR, US)
    wait_for(lambda: place(hub, "law-stop") == "onprem-eu", PATIENCE_S, lambda: running.log()[-2000:])
    assert (asked(running) - counted, evictions(hub, "law-stop")) == (1, 1)
    hub.delete(reader("law-stop"))


@pytest.fixture
def never_admitted(local_fleet: LocalFleet) -> Iterator[None]:
    """A check on the worker's queue that nobody answers: a copy has quota there and is never admitted."""
    worker, name = local_fleet.workers["onprem-eu"], "nobody-answers"
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "example.com/nobody"},
    }
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    active = {"type": "Active", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": at}
    with worker.api() as api:
        api.request("POST", f"{KUEUE}/admissionchecks", check)
        api.request(
            "PATCH", f"{KUEUE}/admissionchecks/{name}/status", {"status": {"conditions": [active]}}, content_type=MERGE
        )
        with_check = {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}}}
        api.request("PATCH", QUEUE, with_check, content_type=MERGE)
        try:
            yield
        finally:
            api.request("PATCH", QUEUE, {"spec": {"admissionChecksStrategy": None}}, content_type=MERGE)
            api.request("DELETE", f"{KUEUE}/admissionchecks/{name}", {})


@pytest.mark.usefixtures("never_admitted")
def test_a_standing_nomination_is_ended_through_the_hub_and_never_withdrawn(
    hub: Hub, running: Running, rules: Rules, local_fleet: LocalFleet
) -> None:
    hub.create(reader("law-nominated"))

    def reserved() -> bool:
        return any("law-nominated" in name for name in hub.copies("autonomy"))

    wait_for(reserved, PATIENCE_S, lambda: running.log()[-2000:])
    found = hub.workloads("autonomy")["law-nominated"]
    assert found["status"]["nominatedClusterNames"] == ["onprem-eu"]
    before, counted = digest(running), asked(running)
    rules.forbid(DE, FI, FR, US)
    loaded(running, before)
    wait_for(lambda: waits(hub, "law-nominated"), PATIENCE_S, lambda: running.log()[-2000:])
    wait_for(lambda: not reserved(), PATIENCE_S)
    assert (asked(running) - counted, evictions(hub, "law-nominated")) == (1, 1)
    hub.delete(reader("law-nominated"))


def test_all_of_it_is_in_an_audit_log_that_verifies(running: Running) -> None:
    entries = audited(running)
    told = "\n".join(f"{e['kind']} {e['workload']} {e['cluster']} {e['detail']}" for e in entries)
    assert entries[0]["kind"] == "bundle", f"rules come before what is ruled by them:\n{told}"
    assert {entry["actor"] for entry in entries} == {"unsigned"}, told
    jobs = {decided(running, "autonomy", name)["decision"]["uid"]: name for name in OURS}
    ours = [entry for entry in entries if entry["workload"] in jobs]  # other tests leave work on the same fleet
    changes = [
        (
            jobs[entry["workload"]],
            entry["kind"],
            dict(entry["detail"]).get("course"),
            dict(entry["detail"]).get("state"),
        )
        for entry in ours
        if entry["kind"] in ("illegal", "legal-again")
    ]
    expected = [("law-stop", "illegal", "end", "runs"), ("law-nominated", "illegal", "end", "waits")]
    assert changes == expected, f"{changes}, of:\n{told}"
    granted = {
        (jobs[entry["workload"]], name) for entry in ours for said in entry["said"] for name in said["exceptions"]
    }
    assert ("law-waits", "for-a-day") in granted, told
    assert {name for _, name in granted} == {"for-a-day"}, told
