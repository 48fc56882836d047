"""From a checked blueprint to the frozen policy that decisions read, and to the digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Mapping as AbstractMapping
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from dispatcher.config.blueprint import DATA, FLEET, Blueprint, Draft
from dispatcher.config.data_file import DataFile, DataKind, DataStore
from dispatcher.config.fleet_file import Cluster, CredentialsRef, Flavor, FleetFile, Site
from dispatcher.config.prices_file import ComputeRow, EgressRow
from dispatcher.config.residency.assemble import attestation, records
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
from dispatcher.core.policy import (
    ClassPolicy,
    ClusterPolicy,
    ComputePrice,
    Credentials,
    DataSet,
    EgressPrice,
    FlavorPolicy,
    Limits,
    NodeShape,
    Policy,
    PriceBook,
    PriceUnit,
    Product,
    QueuePolicy,
    Store,
)
from dispatcher.core.products import product_of
from dispatcher.core.snapshot import Taint
from residency.derivation import Made
from residency.facts import Kind, Place

K = TypeVar("K", bound=str)
V = TypeVar("V")
CPU_ONLY = "cpu"
ANY_OTHER = "*"
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
        classes=_frozen(
            (
                name,
                ClassPolicy(
                    name,
                    c.delay_price,
                    c.patience,
                    c.default_duration,
                    c.preemptible,
                    c.checkpoint_required,
                    c.may_burst,
                    c.look_ahead,
                ),
            )
            for name, c in plan.classes.items()
        ),
        queues=_frozen(
            (
                QueueName(name),
                QueuePolicy(
                    QueueName(name),
                    queue.default_class,
                    tuple(DataLabel(label) for label in sorted(queue.default_labels)),
                ),
            )
            for name, queue in plan.queues.items()
        ),
        data_sets=_data_sets(data),
        stores=_frozen(
            (
                StoreName(name),
                Store(StoreName(name), store.provider, RegionName(store.region), _store_place(name, store, fleet)),
            )
            for name, store in data.stores.items()
        ),
        labels=_frozen((DataLabel(name), draft.line(DATA, "labels", name)) for name in data.labels),
        prices=_prices(prices.max_age_days, prices.compute, prices.egress, blueprint),
        limits=Limits(
            silence_limit_s=fleet.limits.silence_limit,
            hold_ttl_s=fleet.limits.hold_ttl,
            stranded_permille=fleet.limits.stranded_permille,
            max_nominations=fleet.limits.max_nominations,
            outstanding_nominations=fleet.limits.outstanding_nominations,
        ),
        loaded_from=folder,
        compiled_at=now,
        residency=blueprint.residency,
    )


def digest_of_blueprint(blueprint: Blueprint) -> str:
    """The same for the same content, however written: comments, blank lines, quotes and key order do not count."""
    files = [blueprint.fleet, blueprint.queues, blueprint.data, blueprint.prices, blueprint.products]
    content = [*files, blueprint.residency.digest]
    text = json.dumps(_canonical(content), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_HEX]


def _canonical(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _canonical(getattr(value, name)) for name in type(value).model_fields}
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
    )


def _credentials(reference: CredentialsRef) -> Credentials:
    namespace, _, secret = (reference.secret or "").partition("/")
    return Credentials(namespace or None, secret or None, reference.key, reference.file)


def _data_sets(data: DataFile) -> AbstractMapping[DataSetName, DataSet]:
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
            ),
        )
        for name, entry in data.data_sets.items()
    )


def canonical_product(text: str, products: AbstractMapping[ProductName, Product]) -> str | None:
    """A price row's product: "cpu", or the canonical name behind a spelling; None when there is none."""
    return CPU_ONLY if text == CPU_ONLY else product_of(text, products)


def unit_for(product: str, products: AbstractMapping[ProductName, Product]) -> PriceUnit:
    if product == CPU_ONLY:
        return PriceUnit.VCPU_HOUR
    is_slice = products[ProductName(product)].mig_profile is not None
    return PriceUnit.MIG_SLICE_HOUR if is_slice else PriceUnit.GPU_HOUR


def _prices(
    max_age_days: int, compute: tuple[ComputeRow, ...], egress: tuple[EgressRow, ...], blueprint: Blueprint
) -> PriceBook:
    rows: dict[tuple[str, str, str, str], ComputePrice] = {}
    for row in compute:
        product = canonical_product(row.product, blueprint.products) or row.product
        rows[(row.provider, row.region, product, str(row.purchase))] = ComputePrice(
            provider=row.provider,
            region=RegionName(row.region),
            product=product,
            purchase=row.purchase,
            unit=unit_for(product, blueprint.products),
            usd_micro_per_hour=row.usd_per_hour,
            source=row.source,
            dated=row.dated,
        )
    routes = egress_routes(egress, tuple(blueprint.fleet.regions))
    return PriceBook(
        max_age_days=max_age_days,
        compute=MappingProxyType(dict(sorted(rows.items()))),
        egress=MappingProxyType({key: _egress(*key, row) for key, row in sorted(routes.items())}),
    )


def egress_routes(rows: tuple[EgressRow, ...], regions: tuple[str, ...]) -> dict[tuple[str, str], EgressRow]:
    """The row that rules each pair of regions: its own, else the source's declared default `*` (FR-CFG-02).

    The default is for other regions: what moving within a region costs must be written out to be known.
    """
    exact = {(row.from_region, row.to_region): row for row in rows if row.to_region != ANY_OTHER}
    for row in rows:
        if row.to_region == ANY_OTHER:
            for region in regions:
                if region != row.from_region:
                    exact.setdefault((row.from_region, region), row)
    return exact


def _egress(source: str, target: str, row: EgressRow) -> EgressPrice:
    return EgressPrice(
        RegionName(source), RegionName(target), row.usd_per_gb, row.bandwidth_mbit_s, row.source, row.dated
    )
