"""Rows of the doctor's table about what only a daemon sees: the catalog's endpoint, the stores' buckets, ghosts; and
about the keys of data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dispatcher.core.doctor import Code
from dispatcher.core.doctor.facts import (
    CatalogFacts,
    DaemonFacts,
    DataKeyFacts,
    FleetFacts,
    GhostFacts,
    ReplicaFacts,
    Verb,
)
from dispatcher.core.ghosts import GhostKind
from dispatcher.core.ids import StoreName
from dispatcher.core.policy import Catalog, CatalogSource, CatalogStanding, Credentials, ObjectSource
from dispatcher.core.replicas import Presence
from tests.core_builders import store
from tests.unit.doctor_facts import Change, Row, all_of, hub, hub_cluster, no_blueprint, policy_change, same

TOKEN = Credentials("entrepot-system", "catalog-token", "token")
SOURCE = CatalogSource("https://catalog.example/v1/data-sets?key=not-for-eyes", 60, 3600, TOKEN)
OBJECTS = ObjectSource("s3://lake/sets", 900)
CONFIRMED = ReplicaFacts("roads", "lake", Presence.CONFIRMED, 60)
READ = CatalogFacts(CatalogStanding.READ, 30)
TOKEN_KEY = DataKeyFacts("catalog", "entrepot-system/catalog-token", "token")
MAY_READ = Verb("get", "", "secrets", "entrepot-system", "catalog-token")

names_both = policy_change(
    catalog=Catalog(SOURCE, CatalogStanding.UNREAD),
    stores={StoreName("lake"): replace(store("lake"), objects=OBJECTS)},
)


def says(**over: Any) -> Change:
    """A blueprint that names a catalog and a bucket, and a daemon that leads and says this of them."""
    well = DaemonFacts("http://daemon:8383", leads=True, catalog=READ, replicas=(CONFIRMED,))

    def answered(facts: FleetFacts) -> FleetFacts:
        return replace(facts, daemon=replace(well, **over))

    return all_of(names_both, answered)


def catalog(standing: CatalogStanding, age_s: int | None, *trouble: str) -> Change:
    return says(catalog=CatalogFacts(standing, age_s, trouble))


def replicas(*found: ReplicaFacts, leads: bool | None = True) -> Change:
    return says(replicas=found, leads=leads)


GHOST = GhostFacts("onprem", GhostKind.NO_PODS, "team/train", "16 GPUs are taken by it, and it has no pod")

DATA_ROWS: tuple[Row, ...] = (
    Row(
        Code.GHOST,
        "room that is charged for what is not there, as the daemon saw it",
        lambda facts: replace(facts, daemon=DaemonFacts("http://daemon", ghosts=(GHOST,))),
        lambda facts: replace(facts, daemon=DaemonFacts("http://daemon")),
    ),
    Row(
        Code.DATA_NOT_ASKED,
        "a catalog and a bucket that nobody asked the daemon about are not known to be well",
        names_both,
        same,
    ),
    Row(
        Code.DATA_NOT_ASKED,
        "nor are they where the daemon did not answer",
        says(error="connection refused", catalog=None, replicas=()),
        says(),
    ),
    Row(
        Code.DATA_KEY_MISSING,
        "a token whose Secret is not there is named with the command that makes it",
        hub(data_keys=(replace(TOKEN_KEY, fault="Secret entrepot-system/catalog-token does not exist"),)),
        hub(data_keys=(TOKEN_KEY,)),
    ),
    Row(
        Code.DATA_KEY_DENIED,
        "a Secret that the daemon's account may not read lacks its component",
        hub_cluster(not_granted=(MAY_READ,)),
        all_of(no_blueprint, hub_cluster(not_granted=(MAY_READ,))),
    ),
    Row(
        Code.CATALOG_FAILS,
        "an endpoint that fails now is a warning while its last good answer counts",
        catalog(CatalogStanding.READ, 600, "cannot be reached (ConnectError)"),
        catalog(CatalogStanding.READ, 600),
    ),
    Row(
        Code.CATALOG_OLD,
        "one whose last good answer is too old is an error, whatever it says now",
        catalog(CatalogStanding.OLD, 7200, "answers 401: the token is missing, wrong or not enough"),
        catalog(CatalogStanding.READ, 3599),
    ),
    Row(
        Code.CATALOG_OLD,
        "so is one that gave none since the start",
        catalog(CatalogStanding.UNREAD, None),
        says(catalog=None),
    ),
    Row(
        Code.STORE_UNSEEN,
        "a store whose key is bad confirms nothing",
        replicas(replace(CONFIRMED, presence=Presence.UNKNOWN, why="the key is not JSON")),
        replicas(replace(CONFIRMED, presence=Presence.MISSING, why="has no object")),
    ),
    Row(
        Code.REPLICA_NOT_LOOKED,
        "a look that is older than three times `every` no longer counts",
        replicas(replace(CONFIRMED, age_s=2701)),
        replicas(replace(CONFIRMED, age_s=2700)),
    ),
    Row(
        Code.REPLICA_NOT_LOOKED,
        "nor does one that never was, but a standby is not asked to look",
        replicas(replace(CONFIRMED, presence=Presence.UNKNOWN, age_s=None, why="not looked for yet")),
        replicas(replace(CONFIRMED, presence=Presence.UNKNOWN, age_s=None), leads=False),
    ),
)
