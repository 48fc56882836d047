"""Data sets for people and scripts: what is declared of each, where from, and what of it was seen."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from dispatcher.core.ids import StoreName
from dispatcher.core.policy import CatalogStanding, DataSet, Policy
from dispatcher.core.replicas import Presence, Seen
from dispatcher.state import FleetState
from dispatcher.web.status import age_s
from dispatcher.web.wire import Wire


class Origin(StrEnum):
    """Where an entry stands."""

    FILE = "file"
    CATALOG = "catalog"


class ReplicaView(Wire):
    place: str
    kind: str
    """store or cluster."""
    presence: Presence | None
    """Null: nobody looks for replicas there."""
    at: datetime | None
    age_s: int | None
    objects: int | None
    size_bytes: int | None
    more: bool
    """Whether there are more objects and bytes than were counted."""
    why: str


class DataSetView(Wire):
    name: str
    origin: Origin
    known: bool
    """False: its catalog has said nothing for too long; nothing starts on it."""
    labels: tuple[str, ...]
    """Its own; those of what it was made from are added."""
    size_bytes: int | None
    derived_from: tuple[str, ...]
    replicas: tuple[ReplicaView, ...]


class CatalogView(Wire):
    where: str
    standing: CatalogStanding
    read_at: datetime | None
    age_s: int | None
    trouble: tuple[str, ...]
    """What is wrong with its last answer; empty: nothing."""


class DataSetList(Wire):
    now: datetime
    catalog: CatalogView | None
    """Null: all data sets stand in the blueprint's files."""
    items: tuple[DataSetView, ...]


def data_sets(state: FleetState) -> DataSetList:
    policy, now = state.policy, state.clock.now()
    items = tuple(_data_set(data_set, policy, state, now) for _, data_set in sorted(policy.data_sets.items()))
    return DataSetList(now=now, catalog=_catalog(state, now), items=items)


def _catalog(state: FleetState, now: datetime) -> CatalogView | None:
    catalog, status = state.policy.catalog, state.catalog
    if catalog is None:
        return None
    read_at = status.read_at if status is not None else catalog.read_at
    return CatalogView(
        where=catalog.source.url.partition("?")[0],
        standing=catalog.standing,
        read_at=read_at,
        age_s=age_s(read_at, now) if read_at is not None else None,
        trouble=status.trouble if status is not None else (),
    )


def _data_set(data_set: DataSet, policy: Policy, state: FleetState, now: datetime) -> DataSetView:
    catalog = policy.catalog
    stores = sorted({*data_set.replica_stores, *data_set.missing_stores})
    return DataSetView(
        name=data_set.name,
        origin=Origin.CATALOG if catalog is not None and data_set.name in catalog.names else Origin.FILE,
        known=catalog is None or data_set.name not in catalog.unknown,
        labels=tuple(str(label) for label in data_set.labels),
        size_bytes=data_set.size_bytes,
        derived_from=tuple(str(source) for source in data_set.derived_from),
        replicas=(
            *(_in_store(data_set, store, state, now) for store in stores),
            *(_declared(str(cluster), "cluster") for cluster in data_set.replica_clusters),
        ),
    )


def _in_store(data_set: DataSet, name: StoreName, state: FleetState, now: datetime) -> ReplicaView:
    store = state.policy.stores.get(name)
    if store is None or store.objects is None:
        return _declared(str(name), "store")
    seen = state.replicas.get((data_set.name, name)) or Seen(Presence.UNKNOWN, now, why="not looked for yet")
    never = (data_set.name, name) not in state.replicas
    return ReplicaView(
        place=name,
        kind="store",
        presence=seen.presence,
        at=None if never else seen.at,
        age_s=None if never else age_s(seen.at, now),
        objects=seen.objects,
        size_bytes=seen.size_bytes,
        more=seen.more,
        why=seen.why,
    )


def _declared(place: str, kind: str) -> ReplicaView:
    """A replica that nobody looks for."""
    return ReplicaView(
        place=place, kind=kind, presence=None, at=None, age_s=None, objects=None, size_bytes=None, more=False, why=""
    )
