"""From a checked blueprint to the frozen policy that decisions read, and to the digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from collections.abc import Mapping as AbstractMapping
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from dispatcher.config.blueprint import DATA, FLEET, Blueprint, Draft
from dispatcher.config.catalog import Merged
from dispatcher.config.data_file import DataFile, DataKind, DataStore, Unbound
from dispatcher.config.fleet_file import Cluster, CredentialsRef, Flavor, FleetFile, Site
from dispatcher.config.price_book import price_book
from dispatcher.config.queues_file import ClassDefaults, OnUnreachable, Order, Queue
from dispatcher.config.residency.assemble import attestation, records
from dispatcher.config.store_ref import ObjectsRef
from dispatcher.core.ids import (
    ClusterName,
    DataLabel,
    DataSetName,
    FlavorName,
    ProductName,
    QueueName,
    RegionName,
    StoreName,
)
from dispatcher.core.order import OrderRules
from dispatcher.core.policy import (
    Catalog,
    CatalogSource,
    CatalogStanding,
    Claim,
    ClassPolicy,
    ClusterPolicy,
    Credentials,
    DataSet,
    FlavorPolicy,
    Limits,
    Measured,
    NodeShape,
    ObjectSource,
    Policy,
    Product,
    QueuePolicy,
    RoundTrip,
    Store,
    Unreachable,
)
from dispatcher.core.prices import div_up
from dispatcher.core.products import product_of
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import WorkloadClass
from residency.derivation import Made
from residency.facts import Kind, Place

K = TypeVar("K", bound=str)
V = TypeVar("V")
_DIGEST_HEX = 16


def compile_policy(blueprint: Blueprint, draft: Draft, folder: str, now: datetime) -> Policy:
    """Build the policy. The blueprint must have no errors; `draft` gives the lines that records point to."""
    fleet, plan, data, prices = blueprint.fleet, blueprint.queues, blueprint.data, blueprint.prices
    return Policy(
        digest=digest_of_blueprint(blueprint),
        products=blueprint.products,
        clusters=_frozen(
            (ClusterName(name), _cluster(name, cluster, blueprint, draft)) for name, cluster in fleet.clusters.items()
        ),
        classes=_frozen((name, _class(name, defaults)) for name, defaults in plan.classes.items()),
        queues=_frozen((QueueName(name), _queue(name, queue)) for name, queue in plan.queues.items()),
        data_sets=_data_sets(data, blueprint.catalog),
        stores=_frozen(
            (
                StoreName(name),
                Store(
                    StoreName(name),
                    store.provider,
                    RegionName(store.region),
                    _store_place(name, store, fleet),
                    _object_source(store.objects) if store.objects is not None else None,
                ),
            )
            for name, store in data.stores.items()
        ),
        labels=_frozen((DataLabel(name), draft.line(DATA, "labels", name)) for name in data.labels),
        prices=replace(
            price_book(prices, blueprint.products, tuple(blueprint.fleet.regions)),
            measured=_measured(data),
            measured_max_age_s=data.bandwidth_max_age,
        ),
        limits=Limits(
            silence_limit_s=fleet.limits.silence_limit,
            hold_ttl_s=fleet.limits.hold_ttl,
            stranded_permille=fleet.limits.stranded_permille,
            max_nominations=fleet.limits.max_nominations,
            outstanding_nominations=fleet.limits.outstanding_nominations,
            mass_loss_percent=fleet.limits.mass_loss,
            reclaim_s=fleet.limits.borrowed_mean_time,
        ),
        loaded_from=folder,
        compiled_at=now,
        residency=blueprint.residency,
        catalog=blueprint.catalog,
        claims=_claims(data, draft),
        unbound_claims_allowed=data.unbound_claims is Unbound.ALLOW,
        order=_order(plan.order),
        regions=tuple(RegionName(region) for region in sorted(fleet.regions)),
        round_trips=_round_trips(fleet),
    )


def _order(order: Order) -> OrderRules:
    return OrderRules(
        ageing_s=order.ageing,
        share_half_life_s=order.share_half_life,
        share_weight_s=order.share_weight,
        reservations=order.reservations,
        hold_out_s=order.hold_out,
    )


def _round_trips(fleet: FleetFile) -> AbstractMapping[tuple[str, str], RoundTrip]:
    rows = {(min(row.between), max(row.between)): row for row in fleet.round_trips}
    return MappingProxyType({pair: RoundTrip(row.ms, row.source, row.dated) for pair, row in sorted(rows.items())})


def _class(name: WorkloadClass, defaults: ClassDefaults) -> ClassPolicy:
    return ClassPolicy(
        workload_class=name,
        delay_price_usd_micro_per_hour=defaults.delay_price,
        patience_s=defaults.patience,
        default_duration_s=defaults.default_duration,
        preemptible=defaults.preemptible,
        checkpoint_required=defaults.checkpoint_required,
        may_burst=defaults.may_burst,
        look_ahead=defaults.look_ahead,
        checkpoint_interval_s=defaults.checkpoint_interval,
        checkpoint_bytes=defaults.checkpoint_size,
        checkpoint_write_s=defaults.checkpoint_write,
        output_bytes=defaults.output_size,
        restart_s=defaults.restart,
        on_unreachable=_unreachable(defaults.on_unreachable),
        idle_timeout_s=defaults.idle_timeout,
        idle_notice_s=defaults.idle_notice,
        users=tuple(RegionName(region) for region in sorted(set(defaults.users))),
        max_round_trip_ms=defaults.max_round_trip_ms,
        round_trip_price_usd_micro=defaults.round_trip_price,
    )


def _unreachable(wanted: OnUnreachable) -> Unreachable:
    return Unreachable(wanted.do, wanted.after or 0)


def _queue(name: str, queue: Queue) -> QueuePolicy:
    return QueuePolicy(
        QueueName(name),
        queue.default_class,
        tuple(DataLabel(label) for label in sorted(queue.default_labels)),
        _unreachable(queue.on_unreachable) if queue.on_unreachable is not None else None,
        queue.idle_timeout,
    )


def digest_of_blueprint(blueprint: Blueprint) -> str:
    """The same for the same content, however written: comments, blank lines, quotes and key order do not count."""
    files = [blueprint.fleet, blueprint.queues, blueprint.data, blueprint.prices, blueprint.products]
    content = [*files, blueprint.residency.digest, *((blueprint.catalog,) if blueprint.catalog is not None else ())]
    text = json.dumps(_canonical(content), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_HEX]


def _canonical(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {n: _canonical(getattr(value, n)) for n, f in type(value).model_fields.items() if not f.exclude}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {f.name: _canonical(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, AbstractMapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value


def _frozen(pairs: Iterable[tuple[K, V]]) -> AbstractMapping[K, V]:
    return MappingProxyType(dict(sorted(pairs, key=lambda pair: pair[0])))


def _cluster(name: str, cluster: Cluster, blueprint: Blueprint, draft: Draft) -> ClusterPolicy:
    return ClusterPolicy(
        name=ClusterName(name),
        provider=cluster.provider,
        region=RegionName(cluster.region),
        site=place_of(name, Kind.CLUSTER, f"{cluster.provider}/{cluster.region}", cluster.site),
        flavors=_frozen(
            (FlavorName(key), _flavor(key, flavor, blueprint.products)) for key, flavor in cluster.flavors.items()
        ),
        credentials=_credentials(cluster.credentials),
        line=draft.line(FLEET, "clusters", name),
        cache_bytes=cluster.data_cache or 0,
        energy_permille=cluster.energy_factor,
        grid_g_per_kwh=blueprint.fleet.regions[cluster.region].carbon_g_per_kwh,
    )


def place_of(name: str, kind: Kind, where: str, site: Site) -> Place:
    """What is attested about a site, as rules see it. `where` tells one site from another: provider and region."""
    return Place(
        name=name,
        kind=kind,
        site=where,
        country=site.country,
        subdivision=site.subdivision,
        customs_territory=site.customs_territory,
        location_precision=site.location_precision,
        operator_country=site.operator_country,
        parent_country=site.parent_country,
        control_plane=_sorted(site.control_plane),
        support_countries=_sorted(site.support_access),
        support_nationalities=_sorted(site.support_nationalities),
        us_persons_only=site.us_persons_only,
        key_holder=site.key_custody,
        key_country=site.key_country,
        log_sink=_sorted(site.log_sink),
        object_store=_sorted(site.object_store),
        certifications=records(site.certifications),
        records=records(site.records),
        tenancy=site.tenancy,
        fulfils=_sorted(site.fulfils),
        attested=attestation(site.attested),
    )


def _store_place(name: str, store: DataStore, fleet: FleetFile) -> Place:
    """A store stands in the country of its region, whoever vouches for the rest."""
    place = place_of(name, Kind.STORE, f"{store.provider}/{store.region}", store.site)
    return replace(place, country=fleet.regions[store.region].country)


def _object_source(objects: ObjectsRef) -> ObjectSource:
    key = objects.credentials
    return ObjectSource(
        url=objects.url,
        every_s=objects.every,
        endpoint=objects.endpoint,
        region=objects.region,
        key=_credentials(CredentialsRef(secret=key.secret, key=key.key, file=key.file)) if key is not None else None,
        marker=objects.marker,
    )


def _sorted(values: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(sorted(str(value) for value in values))


def _flavor(name: str, flavor: Flavor, products: AbstractMapping[ProductName, Product]) -> FlavorPolicy:
    return FlavorPolicy(
        name=FlavorName(name),
        labels=tuple(sorted(flavor.labels.items())),
        product=product_of(flavor.product, products) if flavor.product else None,
        purchase=flavor.purchase,
        speed_permille=flavor.speed,
        nodes=NodeShape(
            count=flavor.nodes.count,
            allocatable=flavor.nodes.resources(),
            taints=tuple(Taint(taint.key, taint.value, str(taint.effect)) for taint in flavor.taints),
        ),
        class_speeds=tuple(sorted(flavor.class_speeds.items())),
        reserved_until=_reserved_until(flavor),
        watts=flavor.watts,
        failure_s=flavor.mean_time_to_failure,
    )


def _reserved_until(flavor: Flavor) -> date | None:
    """Only where all nodes are under contract is an hour more always one that is paid anyway."""
    found = flavor.reserved
    return found.until if found is not None and found.nodes >= flavor.nodes.count else None


def _credentials(reference: CredentialsRef) -> Credentials:
    namespace, _, secret = (reference.secret or "").partition("/")
    return Credentials(namespace or None, secret or None, reference.key, reference.file)


def _data_sets(data: DataFile, catalog: Catalog | None) -> AbstractMapping[DataSetName, DataSet]:
    """All data sets; while the catalog was never read, without those that were made from one of it: what their labels
    are, nobody can say."""
    unread = catalog is not None and catalog.standing is CatalogStanding.UNREAD
    lost = made_from(data, lambda source: source not in data.data_sets) if unread else frozenset[str]()
    return _frozen(
        (
            DataSetName(name),
            DataSet(
                name=DataSetName(name),
                labels=tuple(DataLabel(label) for label in sorted(set(entry.labels))),
                size_bytes=entry.size,
                replica_clusters=tuple(ClusterName(c) for c in sorted(entry.replicas.clusters)),
                replica_stores=tuple(StoreName(s) for s in sorted(entry.replicas.stores)),
                derived_from=tuple(DataSetName(source) for source in sorted(entry.derived_from)),
                made=Made(entry.made_by.transformation, entry.made_by.image) if entry.made_by is not None else None,
                base=entry.kind is DataKind.BASE,
                persons=entry.persons,
                objects=_objects(entry.size, entry.object_size),
            ),
        )
        for name, entry in data.data_sets.items()
        if name not in lost
    )


def _measured(data: DataFile) -> AbstractMapping[tuple[str, str], Measured]:
    """The newest row of each route; of those of one instant the slowest."""
    rows = sorted(data.bandwidth, key=lambda row: (row.from_region, row.to_region, row.at, -row.measured))
    return MappingProxyType({(row.from_region, row.to_region): Measured(row.measured, row.at) for row in rows})


def _claims(data: DataFile, draft: Draft) -> AbstractMapping[str, Claim]:
    """A data set is known to be where the claim holds it: checks.py sees to that."""
    found = []
    for name, entry in data.claims.items():
        held = {ClusterName(cluster): DataSetName(held) for cluster, held in (entry.data_sets or {}).items()}
        nothing = {ClusterName(cluster): None for cluster in entry.clusters or ()}
        holds: dict[ClusterName, DataSetName | None] = {**held, **nothing}
        found.append((name, Claim(name, dict(sorted(holds.items())), draft.line(DATA, "claims", name))))
    return _frozen(found)


def made_from(data: DataFile, is_one: Callable[[str], bool]) -> frozenset[str]:
    """The data sets that have, however far back, one of some names among their sources."""
    found: set[str] = set()
    grown = True
    while grown:
        before = len(found)
        for name, entry in data.data_sets.items():
            if any(is_one(source) or source in found for source in entry.derived_from):
                found.add(name)
        grown = len(found) > before
    return frozenset(found)


def catalog_of(data: DataFile, merged: Merged) -> Catalog | None:
    """What the policy says of the endpoint; None: data.yaml names none."""
    reference = data.catalog
    if reference is None or merged.standing is None:
        return None
    token = reference.token
    source = CatalogSource(
        url=reference.url,
        every_s=reference.every,
        max_age_s=reference.max_age,
        token=_credentials(CredentialsRef(secret=token.secret, key=token.key, file=token.file)) if token else None,
        ca_file=reference.ca_file,
    )
    names = frozenset(merged.names)
    unknown = names | made_from(data, names.__contains__) if merged.standing is CatalogStanding.OLD else ()
    return Catalog(
        source=source,
        standing=merged.standing,
        names=tuple(DataSetName(name) for name in merged.names),
        unknown=tuple(DataSetName(name) for name in sorted(unknown)),
        read_at=merged.read_at,
    )


def _objects(size: int | None, object_size: int | None) -> int | None:
    return max(1, div_up(size, object_size)) if size is not None and object_size else None
