"""What follows from looking for replicas: sources of decisions, the leader's rhythm, and what people are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from connectors.embedded import ManualClock
from connectors.objects import ObjectStore
from dispatcher.core.decision import Outcome, Reason
from dispatcher.core.explain import why_not_text
from dispatcher.core.ids import ClusterName, DataSetName, StoreName
from dispatcher.core.legality import office_of
from dispatcher.core.policy import ObjectSource, Policy
from dispatcher.core.replicas import Presence, Seen, declared, without
from dispatcher.loops.replicas import LOOP, ReplicaLoop, missing
from dispatcher.metrics import Metrics
from dispatcher.runtime import Health
from dispatcher.state import BlueprintStatus, FleetState
from dispatcher.web.data import data_sets
from tests.connectors.s3_server import S3Server, key, s3_server
from tests.core_builders import (
    NOW,
    data,
    decided,
    detail_of,
    policy,
    reasons,
    request,
    store,
    uses,
    worker,
)

ROADS, LAKE, VAULT = DataSetName("roads"), StoreName("lake"), StoreName("vault")


def rules(source: ObjectSource | None, *stores: str) -> Policy:
    lake = replace(store("lake", region="r-onprem"), objects=source)
    sets = [data("roads", stores=stores or ["lake"])]
    return policy(data_sets=sets, stores=[lake, store("vault", region="r-onprem")])


SOURCE = ObjectSource("s3://lake/sets", 900)


def test_a_missing_replica_is_no_source_and_why_names_its_store() -> None:
    gone = without(rules(SOURCE), [(ROADS, LAKE)])
    decision = decided(request(data=uses("roads")), worker(), rules=gone)
    assert decision.outcome is Outcome.WAIT
    assert Reason.DATA_MISSING in reasons(decision, "onprem")
    assert detail_of(decision, "onprem", Reason.DATA_MISSING).seen == ("lake",)
    assert "which lies nowhere (it is not in lake as declared" in why_not_text(decision, ClusterName("onprem"))


def test_another_replica_is_read_instead() -> None:
    gone = without(rules(SOURCE, "lake", "vault"), [(ROADS, LAKE)])
    decision = decided(request(data=uses("roads")), worker(), rules=gone)
    assert decision.chosen == "onprem"


def test_what_is_missing_is_another_policy_and_nothing_missing_is_the_same() -> None:
    whole = rules(SOURCE)
    assert without(whole, []) is whole
    assert without(whole, [(ROADS, VAULT)]) is whole, "what was not declared cannot be missing"
    gone = without(whole, [(ROADS, LAKE)])
    assert gone.digest != whole.digest
    assert declared(gone) == declared(whole), "what is missing is looked for again"


def test_where_unlabelled_data_may_be_does_not_shrink_when_a_replica_is_lost() -> None:
    whole = rules(SOURCE)
    gone = without(whole, [(ROADS, LAKE)])
    assert office_of(gone).catalog["roads"].home == office_of(whole).catalog["roads"].home != ()


# --- the loop, on a real store -----------------------------------------------------------------------------------


@dataclass
class Leads:
    leading: bool = True

    def may_write(self, now_s: float) -> bool:
        return self.leading


@dataclass
class Looking:
    s3: S3Server
    clock: ManualClock
    state: FleetState
    leads: Leads
    opened: list[str] = field(default_factory=list)
    loop: ReplicaLoop = field(init=False)

    def __post_init__(self) -> None:
        health = Health(self.clock)
        health.register(LOOP, 60.0)
        self.loop = ReplicaLoop(self.state, self.open, Metrics(), health, self.leads)  # type: ignore[arg-type]

    def open(self, source: ObjectSource) -> ObjectStore:
        self.opened.append(source.url)
        return ObjectStore(source, self.clock, key)

    @property
    def seen(self) -> Seen:
        return self.state.replicas[(ROADS, LAKE)]

    def metric(self, presence: str) -> float | None:
        labels = {"store": "lake", "presence": presence}
        return self.loop.metrics.registry.get_sample_value("entrepot_replicas", labels)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        server.bucket("pond")
        yield server


@pytest.fixture
def looking(s3: S3Server) -> Looking:
    s3.put("pond", "sets/roads/1.bin")
    clock = ManualClock(NOW)
    found = rules(s3.source("pond"))
    state = FleetState(clock, found, BlueprintStatus(found.digest, NOW), None, {})  # type: ignore[arg-type]
    return Looking(s3, clock, state, Leads())


async def test_a_replica_is_confirmed_then_missing_then_back(looking: Looking) -> None:
    await looking.loop.turn()
    assert (looking.seen.presence, looking.seen.objects, looking.seen.size_bytes) == (Presence.CONFIRMED, 1, 5)
    looking.s3.delete("pond", "sets/roads/1.bin")
    looking.clock.advance(899)
    await looking.loop.turn()
    assert looking.seen.presence is Presence.CONFIRMED, "each look is billed: not before it is due"
    looking.clock.advance(1)
    await looking.loop.turn()
    assert missing(looking.state) == ((ROADS, LAKE),)
    assert (looking.metric("missing"), looking.metric("confirmed")) == (1, 0)
    looking.s3.put("pond", "sets/roads/1.bin")
    looking.clock.advance(900)
    await looking.loop.turn()
    assert missing(looking.state) == ()


async def test_only_the_leader_looks_and_what_it_saw_missing_does_not_count_for_ever(looking: Looking) -> None:
    looking.s3.delete("pond", "sets/roads/1.bin")
    await looking.loop.turn()
    assert missing(looking.state) == ((ROADS, LAKE),)
    looking.leads.leading = False
    looking.clock.advance(2700)
    await looking.loop.turn()
    assert len(looking.opened) == 1
    assert missing(looking.state) == ((ROADS, LAKE),)
    looking.clock.advance(1)
    assert missing(looking.state) == ()


async def test_a_store_that_cannot_be_asked_leaves_the_replica_as_declared(looking: Looking) -> None:
    bad = replace(looking.s3.source("gone"))
    found = rules(bad)
    looking.state.policy = found
    await looking.loop.turn()
    assert (looking.seen.presence, looking.seen.why) == (Presence.UNKNOWN, "there is no such bucket")
    assert missing(looking.state) == ()


async def test_people_see_what_was_seen_with_its_age_and_what_was_never_looked_for(looking: Looking) -> None:
    def shown() -> tuple[Presence | None, datetime | None, int | None, str]:
        view = data_sets(looking.state).items[0].replicas[0]
        return view.presence, view.at, view.age_s, view.why

    assert shown() == (Presence.UNKNOWN, None, None, "not looked for yet")
    await looking.loop.turn()
    looking.clock.advance(60)
    assert shown() == (Presence.CONFIRMED, NOW, 60, "")
    looking.state.policy = rules(None)
    assert shown() == (None, None, None, "")
