"""One bad worker, on real clusters: what the network and its apiserver can do to us, and that nobody else feels it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fleet import LocalFleet, rbac
from tests.local.daemon import wait_for
from tests.local.faulty import (
    CONNECTED,
    GRACE_S,
    SILENCE_S,
    Bed,
    bed,
    median_ratio,
    no_slower,
    revocable_token,
    revoke,
)
from tests.local.proxy import Direction, Proxy
from tests.loops.jobs import B200, H100, H200, gang

pytestmark = pytest.mark.local
BAD = "cloud-c-us"
"""The only cluster with B200."""
CREDENTIALS_S = 40.0
"""The daemon reads its kubeconfigs again twice a minute."""
OTHERS = ("onprem-eu", "cloud-a-fi")


@pytest.fixture(scope="module")
def faulty(local_fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(local_fleet, tmp_path_factory.mktemp("bad-worker")) as found:
        yield found


@pytest.fixture(autouse=True)
def well(faulty: Bed) -> Iterator[None]:
    """Each test begins and ends with a healthy fleet."""
    faulty.wait_connected(*OTHERS, BAD)
    yield
    faulty.proxies.mend()


def elsewhere(prefix: str, count: int) -> list[dict[str, Any]]:
    """Small jobs for the other clusters."""
    return [gang(f"{prefix}-{n}", gpus=1, product=(H100, H200)[n % 2], duration="1s") for n in range(count)]


FAULTS: dict[str, Callable[[Proxy], None]] = {
    "its connections are reset and new ones refused": Proxy.cut,
    "its far end is gone and every connection stays open": Proxy.half_open,
    "it takes every request and its answers stop": lambda proxy: proxy.silence(Direction.ANSWERS),
}


@pytest.mark.parametrize("befall", FAULTS.values(), ids=FAULTS.keys())
def test_a_lost_worker_gets_nothing_new_keeps_what_it_runs_and_returns_by_itself_when(
    faulty: Bed, befall: Callable[[Proxy], None]
) -> None:
    tag = list(FAULTS.values()).index(befall)
    stays = gang(f"fault-stays-{tag}", gpus=1, product=B200, duration="600s")
    faulty.hub.create(stays)
    name = stays["metadata"]["name"]
    wait_for(lambda: faulty.runs_on(name, BAD) is not None, 60, faulty.tell)
    wait_for(lambda: faulty.placed(name) == [BAD], 20, faulty.tell)
    copy = faulty.runs_on(name, BAD)
    assert copy is not None
    before = faulty.latencies(elsewhere(f"fault-before-{tag}", 4))

    befall(faulty.proxies[BAD])
    noticed_s = faulty.wait_lost(BAD)
    wanted = gang(f"fault-wanted-{tag}", gpus=1, product=B200, duration="1s")
    faulty.hub.create(wanted)
    during = faulty.latencies(elsewhere(f"fault-during-{tag}", 4))
    print(f"\nlost after {noticed_s:.1f} s; others {median_ratio(during, before):.2f} x of before", file=sys.stderr)
    assert no_slower(during, before)
    wait_for(lambda: faulty.why(wanted["metadata"]["name"])["decision"] is not None, 20, faulty.tell)
    assert faulty.placed(wanted["metadata"]["name"]) == []
    assert BAD in faulty.why(wanted["metadata"]["name"])["headline"]
    assert faulty.cluster(BAD)["error"]

    faulty.proxies[BAD].mend()
    back_s = faulty.wait_connected(BAD)
    print(f"back after {back_s:.1f} s", file=sys.stderr)
    faulty.settle([wanted])
    after = faulty.runs_on(name, BAD)
    assert after is not None, "what ran there runs on"
    assert after["metadata"]["uid"] == copy["metadata"]["uid"]
    assert faulty.placed(name) == [BAD]
    faulty.remove(stays)


def test_connections_that_die_without_a_word_are_replaced_within_the_silence_limit(
    faulty: Bed, local_fleet: LocalFleet
) -> None:
    """The watches that are open now never bring another byte, while new connections work: no cluster may look fresh by
    its heartbeat alone."""
    usable = faulty.cluster(BAD)["nodes"]["usable"]
    with local_fleet.workers[BAD].api() as api:
        node = api.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"]

    def knows_or_doubts() -> bool:
        shown = faulty.cluster(BAD)
        return shown["link"] != CONNECTED or shown["nodes"]["usable"] == usable - 1

    faulty.proxies[BAD].silence_present()
    local_fleet.cordon(BAD, node)
    try:
        noticed_s = wait_for(knows_or_doubts, SILENCE_S + GRACE_S, faulty.tell)
        wait_for(lambda: faulty.cluster(BAD)["nodes"]["usable"] == usable - 1, GRACE_S * 2, faulty.tell)
        back_s = faulty.wait_connected(BAD)
    finally:
        local_fleet.cordon(BAD, node, cordoned=False)
    print(f"\nin doubt after {noticed_s:.1f} s, read anew {back_s:.1f} s later", file=sys.stderr)


def test_a_worker_that_takes_seconds_for_each_answer_delays_no_other(faulty: Bed) -> None:
    before: list[float] = []
    during: list[float] = []
    for turn in range(4):  # by turns, so that the machine's own load falls on both
        before += faulty.latencies(elsewhere(f"fault-quick-{turn}", 2))
        faulty.proxies[BAD].slow(2.5)
        during += faulty.latencies(elsewhere(f"fault-slow-{turn}", 2))
        faulty.proxies[BAD].mend()
    print(f"\nnomination elsewhere: {median_ratio(during, before):.2f} x of before", file=sys.stderr)
    assert no_slower(during, before), (during, before)


@contextlib.contextmanager
def credentials_taken(faulty: Bed) -> Iterator[None]:
    """Wait until the daemon has read the kubeconfig that the body writes: it looks at files now and then."""
    taken = faulty.running.log().count('"credentials_changed"')
    yield
    wait_for(lambda: faulty.running.log().count('"credentials_changed"') > taken, CREDENTIALS_S, faulty.tell)


def test_a_revoked_token_costs_one_cluster_and_a_new_kubeconfig_is_taken_without_a_restart(
    faulty: Bed, local_fleet: LocalFleet
) -> None:
    worker, process = local_fleet.workers[BAD], faulty.running.process.pid
    with credentials_taken(faulty):
        faulty.give_access(BAD, revocable_token(worker, "fault-token"))
    faulty.wait_connected(BAD)
    before = faulty.latencies(elsewhere("fault-trusted", 4))

    revoke(worker, "fault-token")
    # The apiserver remembers for ten seconds whom it has let in.
    wait_for(lambda: faulty.lost(BAD), 10 + SILENCE_S + GRACE_S, faulty.tell)
    shown = faulty.cluster(BAD)
    assert "401" in shown["error"]
    during = faulty.latencies(elsewhere("fault-revoked", 4))
    assert no_slower(during, before)
    assert not any(map(faulty.lost, OTHERS))

    with worker.api() as api:
        faulty.give_access(BAD, rbac.mint(api, rbac.READER))
    back_s = faulty.wait_connected(BAD, within_s=45)
    print(f"\nlost as: {shown['text']}; back {back_s:.1f} s after the new kubeconfig", file=sys.stderr)
    assert faulty.running.process.pid == process
    assert faulty.running.process.poll() is None
    job = gang("fault-trusted-again", gpus=1, product=B200, duration="1s")
    faulty.latencies([job])
    faulty.settle([job])


def test_every_fault_at_once_on_one_worker_delays_no_other(faulty: Bed, local_fleet: LocalFleet) -> None:
    worker, proxy, over = local_fleet.workers[BAD], faulty.proxies[BAD], threading.Event()
    before = faulty.latencies(elsewhere("fault-calm", 4))

    def storm() -> None:
        """One after the other, each for a moment, with a revoked token all the time."""
        while not over.is_set():
            for befall in (
                Proxy.cut,
                Proxy.half_open,
                Proxy.silence,
                Proxy.silence_present,
                lambda p: p.slow(3.0, 500),
            ):
                befall(proxy)
                over.wait(0.7)
                proxy.mend()
                over.wait(0.1)

    with credentials_taken(faulty):  # until then the storm would leave it the token that is still good
        faulty.give_access(BAD, "revoked")
    thread = threading.Thread(target=storm)
    thread.start()
    try:
        wait_for(lambda: faulty.lost(BAD), 2 * SILENCE_S + GRACE_S, faulty.tell)
        accepted, started = proxy.accepted, time.monotonic()
        during = faulty.latencies(elsewhere("fault-storm", 4))
        a_second = (proxy.accepted - accepted) / (time.monotonic() - started)
        faulty.credentials(BAD).write_text("apiVersion: v1\nkind: Config\nclusters: [")
        during += faulty.latencies(elsewhere("fault-storm-on", 4))
        assert not any(map(faulty.lost, OTHERS))
    finally:
        over.set()
        thread.join()
        with worker.api() as api:
            faulty.give_access(BAD, rbac.mint(api, rbac.READER))
    ratio = median_ratio(during, before)
    print(f"\nelsewhere {ratio:.2f} x of before; {a_second:.1f} connections a second to the bad one", file=sys.stderr)
    assert no_slower(during, before), (during, before)
    assert a_second < 20, "a bad cluster is not stormed either"
    faulty.wait_connected(BAD, within_s=60)
