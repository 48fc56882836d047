"""From a checked blueprint to the frozen policy that decisions read, and to the digest of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Mapping as AbstractMapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from dispatcher.config.blueprint import DATA, FLEET, Blueprint, Draft
from dispatcher.config.data_file import DataFile
from dispatcher.config.fleet_file import Cluster, CredentialsRef, Flavor, FleetFile, Site
from dispatcher.config.prices_file import ComputeRow, EgressRow
from dispatcher.core.ids import (
    ClusterName,
    CountryCode,
    DataLabel,
    DataSetName,
    FlavorName,
    ProductName,
    QueueName,
    RegionName,
    StoreName,
)
from dispatcher.core.policy import (
    UNLABELLED,
    Attestation,
    ClassPolicy,
    ClusterPolicy,
    ComputePrice,
    Credentials,
    DataSet,
    EgressPrice,
    FlavorPolicy,
    LabelRule,
    Limits,
    NodeShape,
    Policy,
    PriceBook,
    PriceUnit,
    Product,
    QueuePolicy,
    SiteFacts,
    Store,
)
from dispatcher.core.products import product_of
from dispatcher.core.snapshot import Taint

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
                Store(StoreName(name), store.provider, RegionName(store.region), _country(fleet, store.region)),
            )
            for name, store in data.stores.items()
        ),
        labels=_frozen(
            (DataLabel(name), LabelRule(DataLabel(name), countries_of(data, name), draft.line(DATA, "labels", name)))
            for name in data.labels
        ),
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
    )


def countries_of(data: DataFile, label: str) -> tuple[CountryCode, ...] | None:
    """The countries where data with a label may be processed, sets expanded, in order; None = anywhere."""
    entry = data.labels[label]
    if entry.countries is None:
        return None
    found: set[str] = set()
    for code in entry.countries:
        found.update(data.country_sets.get(code[1:], ()) if code.startswith("@") else (code,))
    return tuple(CountryCode(code) for code in sorted(found))


def labels_of(data: DataFile, name: str) -> tuple[str, ...]:
    """All labels of a data set: its own and those of everything it was made from; `unlabelled` when there is none."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        entry = data.data_sets.get(current)
        if current in seen or entry is None:
            continue
        seen.add(current)
        found.update(entry.labels or (() if entry.derived_from else (UNLABELLED,)))
        waiting.extend(entry.derived_from)
    return tuple(sorted(found))


def digest_of_blueprint(blueprint: Blueprint) -> str:
    """The same for the same content, however written: comments, blank lines, quotes and key order do not count."""
    content = [blueprint.fleet, blueprint.queues, blueprint.data, blueprint.prices, blueprint.products]
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
        site=_site(cluster.site),
        flavors=_frozen(
            (FlavorName(key), _flavor(key, flavor, blueprint.products)) for key, flavor in cluster.flavors.items()
        ),
        credentials=_credentials(cluster.credentials),
        line=draft.line(FLEET, "clusters", name),
    )


def _site(site: Site) -> SiteFacts:
    return SiteFacts(
        country=CountryCode(site.country) if site.country else None,
        parent_country=CountryCode(site.parent_country) if site.parent_country else None,
        support_access=(
            None if site.support_access is None else tuple(CountryCode(code) for code in sorted(site.support_access))
        ),
        key_custody=site.key_custody,
        certifications=tuple(sorted(site.certifications)),
        attested=Attestation(site.attested.by, site.attested.until) if site.attested else None,
    )


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


def _country(fleet: FleetFile, region: str) -> CountryCode:
    return CountryCode(fleet.regions[region].country)


def _data_sets(data: DataFile) -> AbstractMapping[DataSetName, DataSet]:
    return _frozen(
        (
            DataSetName(name),
            DataSet(
                name=DataSetName(name),
                labels=tuple(DataLabel(label) for label in labels_of(data, name)),
                size_bytes=entry.size,
                replica_clusters=tuple(ClusterName(c) for c in sorted(entry.replicas.clusters)),
                replica_stores=tuple(StoreName(s) for s in sorted(entry.replicas.stores)),
                derived_from=tuple(DataSetName(source) for source in sorted(entry.derived_from)),
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
