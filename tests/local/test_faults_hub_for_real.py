"""The hub's apiserver goes, comes back, falls silent, refuses writes: nothing is lost, doubled or changed in flight."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.builders import Manifest
from tests.fleet import LocalFleet, rbac
from tests.fleet.processes import FleetError
from tests.local.daemon import is_ready, wait_for
from tests.local.faulty import GRACE_S, NAMESPACE, SILENCE_S, Bed, bed, made_once, made_twice, tries
from tests.local.proxy import Proxy
from tests.loops.jobs import B200, H100, H200, gang

pytestmark = pytest.mark.local
REFUSED_S = 12.0
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/entrepot"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DENIAL = "deny-nominations"


@pytest.fixture(scope="module")
def faulty(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(local_fleet, tmp_path_factory.mktemp("bad-hub")) as found:
        yield found


def batch(prefix: str, count: int, duration: str = "1s") -> list[Manifest]:
    products = (H100, H200, B200)
    return [gang(f"{prefix}-{n}", gpus=1, product=products[n % 3], duration=duration) for n in range(count)]


def names(faulty: Bed, jobs: list[Manifest]) -> list[str]:
    """The Workloads of jobs."""
    found = faulty.hub.workloads(NAMESPACE)
    return [found[m["metadata"]["name"]]["metadata"]["name"] for m in jobs]


@contextlib.contextmanager
def copies_watched(faulty: Bed) -> Iterator[dict[str, set[str]]]:
    """Where copies are ever seen meanwhile, by Workload; an apiserver that is away is asked again."""
    seen: dict[str, set[str]] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.3):
            with contextlib.suppress(FleetError):
                for name, clusters in faulty.hub.copies(NAMESPACE).items():
                    seen.setdefault(name, set()).update(clusters)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_a_restart_of_the_hubs_apiserver_loses_doubles_and_changes_no_nomination(
    faulty: Bed, local_fleet: LocalFleet
) -> None:
    runs = gang("hub-runs", gpus=1, product=H200, duration="600s")
    faulty.latencies([runs])
    jobs = batch("hub-restart", 9)
    with copies_watched(faulty) as seen:
        for manifest in jobs[:6]:
            faulty.hub.create(manifest)
        local_fleet.restart_apiserver("hub")
        for manifest in jobs[6:]:
            with_patience(lambda m=manifest: faulty.hub.create(m))  # type: ignore[misc]
        faulty.settle(jobs, within_s=90)
        workloads = names(faulty, jobs)
    assert {name: seen[name] for name in workloads if len(seen.get(name, ())) > 1} == {}
    assert made_twice(local_fleet, workloads) == {}
    assert made_once(local_fleet, names(faulty, [runs])) == {}
    assert faulty.runs_on("hub-runs", "cloud-a-fi") is not None
    assert all(faulty.why(m["metadata"]["name"])["decision"]["attempt"] == 1 for m in jobs)
    assert is_ready(faulty.running)
    faulty.remove(runs)


def with_patience(call: Callable[[], object], within_s: float = 30.0) -> None:
    """Kueue's webhook and the apiserver find each other again within some seconds."""
    started = time.monotonic()
    while True:
        try:
            call()
            return
        except FleetError:
            assert time.monotonic() - started < within_s
            time.sleep(0.3)


OUTAGES: dict[str, Callable[[Proxy], None]] = {
    "cannot be reached": Proxy.cut,
    "is connected and says nothing": Proxy.half_open,
}


@pytest.mark.parametrize("befall", OUTAGES.values(), ids=OUTAGES.keys())
def test_while_the_hub_nothing_is_decided_and_everything_after_it_is_back_when_it(
    faulty: Bed, local_fleet: LocalFleet, befall: Callable[[Proxy], None]
) -> None:
    tag = list(OUTAGES.values()).index(befall)
    befall(faulty.proxies["hub"])
    unready_s = wait_for(lambda: not is_ready(faulty.running), SILENCE_S + GRACE_S)
    jobs = batch(f"hub-away-{tag}", 3)
    for manifest in jobs:
        faulty.hub.create(manifest)
    health = faulty.running.get("/healthz")
    assert health["ok"], "a hub that is away is no reason to restart the daemon"
    assert not any(map(faulty.lost, local_fleet.workers)), "workers are seen as before"
    assert [faulty.placed(m["metadata"]["name"]) for m in jobs] == [[], [], []]
    faulty.proxies["hub"].mend()
    back_s = wait_for(lambda: is_ready(faulty.running), 30, faulty.tell)
    print(f"\nnot ready after {unready_s:.1f} s, ready {back_s:.1f} s after it was back", file=sys.stderr)
    faulty.settle(jobs)
    assert made_once(local_fleet, names(faulty, jobs)) == {}


@contextlib.contextmanager
def without_permission(fleet: LocalFleet) -> Iterator[None]:
    """The daemon may not patch workloads/status: 403."""
    with fleet.hub.api() as api:
        rules = api.request("GET", ROLE)["rules"]
        api.merge_patch(ROLE, {"rules": [rule for rule in rules if rule["resources"] != ["workloads/status"]]})
        try:
            yield
        finally:
            api.merge_patch(ROLE, {"rules": rules})


@contextlib.contextmanager
def denied_by_policy(fleet: LocalFleet) -> Iterator[None]:
    """An admission policy of the platform team denies the daemon's writes: 422, which looks like a conflict."""
    rule = {"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    user = rbac.user_name(rbac.DAEMON)
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["workloads/status"]}]},
        "validations": [{"expression": f"request.userInfo.username != '{user}'", "message": "frozen for the audit"}],
    }
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": DENIAL}}
    binding = {"policyName": DENIAL, "validationActions": ["Deny"]}
    with fleet.hub.api() as api:
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        for kind, content in zip(kinds, (spec, binding), strict=True):
            api.apply({**policy, "kind": kind, "spec": content})
        time.sleep(2)  # the apiserver takes a policy into force a moment after it was written
        try:
            yield
        finally:
            api.request("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/{DENIAL}")
            api.request("DELETE", f"{ADMISSION}/validatingadmissionpolicies/{DENIAL}")


REFUSALS: dict[str, tuple[Callable[[LocalFleet], AbstractContextManager[None]], int]] = {
    "has taken away the permission": (without_permission, 403),
    "denies them by an admission policy": (denied_by_policy, 422),
}


@pytest.mark.parametrize(("refuse", "code"), REFUSALS.values(), ids=REFUSALS.keys())
def test_writes_are_tried_a_few_times_and_all_go_through_once_after_a_hub_that(
    faulty: Bed,
    local_fleet: LocalFleet,
    refuse: Callable[[LocalFleet], AbstractContextManager[None]],
    code: int,
) -> None:
    jobs = batch(f"hub-refuses-{code}", 6)
    with refuse(local_fleet):
        for manifest in jobs:
            faulty.hub.create(manifest)
        wait_for(lambda: len(faulty.hub.workloads(NAMESPACE).keys() & {m["metadata"]["name"] for m in jobs}) == 6, 20)
        workloads = names(faulty, jobs)
        wait_for(lambda: any(tries(local_fleet, workloads).values()), 20, faulty.tell)
        time.sleep(REFUSED_S)
        refused = tries(local_fleet, workloads)
        assert {c for codes in refused.values() for c in codes} <= {code, 409}, "and none was made"
        # After 1, 2, 4 and 8 s, one to spare: of one job for all where the namespace is refused, else of each.
        assert max(codes.count(code) for codes in refused.values()) <= 6, refused
        assert faulty.running.get("/healthz")["ok"]
        assert not any(map(faulty.lost, local_fleet.workers)), "the other loops go on"
    started = time.monotonic()
    faulty.settle(jobs)
    print(f"\n{refused}; finished {time.monotonic() - started:.1f} s after writes were allowed", file=sys.stderr)
    assert made_once(local_fleet, workloads) == {}
    assert all(faulty.why(m["metadata"]["name"])["decision"]["attempt"] == 1 for m in jobs)
