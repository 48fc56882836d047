"""What the doctor says of catalog and stores: its words, the daemon that it asks, the keys that it looks for."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import cast

import pytest

from dispatcher.app.doctor import data_keys
from dispatcher.cli.doctor_daemon import ask_daemon
from dispatcher.cli.errors import CliError
from dispatcher.core.doctor import Code, diagnose
from dispatcher.core.doctor.facts import CatalogFacts, DaemonFacts, ReplicaFacts
from dispatcher.core.ids import StoreName
from dispatcher.core.policy import Catalog, CatalogStanding, Credentials
from dispatcher.core.ports import Store
from dispatcher.core.replicas import Presence, Seen
from dispatcher.state import CatalogStatus
from tests.core_builders import data, policy, store
from tests.unit.api_world import NOW, World, api_of, served
from tests.unit.doctor_data import CONFIRMED, OBJECTS, SOURCE, TOKEN, TOKEN_KEY, catalog, replicas
from tests.unit.doctor_facts import healthy, hub

LAKE = StoreName("lake")


def quiet(_: str) -> None:
    """Nobody watches."""


# --- words -------------------------------------------------------------------------------------------------------


def test_a_bucket_that_is_gone_is_one_finding_with_its_count_and_the_daemons_reason() -> None:
    gone = replace(CONFIRMED, presence=Presence.UNKNOWN, why="there is no such bucket")
    (finding,) = diagnose(replicas(gone, replace(gone, data_set="dogs"), replace(CONFIRMED, data_set="ok"))(healthy()))
    assert (finding.where.text(), finding.seen) == ("store lake", "2 of 3 replicas: there is no such bucket")


def test_a_catalog_is_named_without_its_query_which_may_hold_what_nobody_should_read() -> None:
    (finding,) = diagnose(catalog(CatalogStanding.OLD, 7200, "no answer in time")(healthy()))
    assert finding.where.text() == "catalog https://catalog.example/v1/data-sets"
    assert finding.seen == "its last good answer is 2 h old: no answer in time"


def test_a_missing_key_comes_with_the_command_that_makes_it() -> None:
    lost = replace(TOKEN_KEY, fault="Secret entrepot-system/catalog-token does not exist")
    (finding,) = diagnose(hub(data_keys=(lost,))(healthy()))
    assert finding.fix == "kubectl -n entrepot-system create secret generic catalog-token --from-file=token=FILE"


# --- the daemon --------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """A daemon whose catalog failed a minute ago, which saw one replica and never looked for the other."""
    world = World()
    sets = {each.name: each for each in (data("roads", stores=["lake"]), data("dogs", stores=["lake"]))}
    stores = {LAKE: replace(store("lake"), objects=OBJECTS)}
    rules = replace(world.state.policy, data_sets=sets, stores=stores)
    world.state.policy = replace(rules, catalog=Catalog(SOURCE, CatalogStanding.READ))
    world.state.catalog = CatalogStatus("https://catalog.example", NOW, world.clock.now(), ("answers 503",))
    world.state.replicas[data("roads").name, LAKE] = Seen(Presence.CONFIRMED, world.clock.now(), 3, 15)
    return world


def asked(world: World) -> DaemonFacts:
    with served(api_of(world.state, cast(Store, None), world.vitals)) as url:
        return replace(ask_daemon(url, quiet), server="")


def test_a_daemon_is_asked_for_its_catalog_and_for_what_it_saw_of_replicas(world: World) -> None:
    assert asked(world) == DaemonFacts(
        "",
        leads=True,
        catalog=CatalogFacts(CatalogStanding.READ, 0, ("answers 503",)),
        replicas=(
            ReplicaFacts("dogs", "lake", Presence.UNKNOWN, None, "not looked for yet"),
            ReplicaFacts("roads", "lake", Presence.CONFIRMED, 0, ""),
        ),
    )


def test_a_replica_that_nobody_looks_for_is_no_fact(world: World) -> None:
    world.state.policy = replace(world.state.policy, stores={LAKE: store("lake")})
    assert asked(world).replicas == ()


def test_a_daemon_that_does_not_answer_is_a_fact() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    found = ask_daemon(url, quiet)
    assert (found.server, found.leads, found.catalog) == (url, None, None)
    assert found.error
    facts = replace(catalog(CatalogStanding.READ, 0)(healthy()), daemon=found)
    assert [finding.code for finding in diagnose(facts)] == [Code.DATA_NOT_ASKED]


def test_an_address_that_is_none_is_bad_usage() -> None:
    with pytest.raises(CliError, match="is not a URL"):
        ask_daemon("daemon:8383", quiet)


# --- keys --------------------------------------------------------------------------------------------------------


def test_keys_are_those_of_the_catalog_and_of_each_store_that_names_one() -> None:
    key = Credentials("entrepot-system", "lake-key", "credentials.json")
    stores = [replace(store("lake"), objects=replace(OBJECTS, key=key)), replace(store("own"), objects=OBJECTS)]
    rules = replace(policy(stores=stores), catalog=Catalog(SOURCE, CatalogStanding.UNREAD))
    assert data_keys(rules) == {"catalog": TOKEN, "lake": key}
    assert data_keys(policy(stores=[store("vault")])) == {}
