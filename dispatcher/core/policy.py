"""The compiled blueprint: frozen, digested, with every default filled in. `dispatcher/config` makes it from YAML.

Money is integer micro-USD; per-unit prices say their unit in the name. A price that is not in the book is absent here
and therefore unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

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
from dispatcher.core.resources import Resources
from dispatcher.core.seal import UNSEALED, Seal
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import WorkloadClass
from residency.bundle import NO_LAW, Bundle
from residency.derivation import Made
from residency.facts import Place

UNLABELLED = DataLabel("unlabelled")
"""The label of data that nobody has classified. Without a rule of its own such data stays where it lies."""


class Purchase(StrEnum):
    """How a flavor's capacity is paid for."""

    INTERNAL = "internal"
    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class PriceUnit(StrEnum):
    GPU_HOUR = "gpu-hour"
    MIG_SLICE_HOUR = "mig-slice-hour"
    VCPU_HOUR = "vcpu-hour"


@dataclass(frozen=True, slots=True)
class Product:
    """A canonical accelerator product, e.g. h100-80gb. `aliases` are normalised spellings (see products.normalise)."""

    name: ProductName
    memory_gib: int
    aliases: tuple[str, ...]
    mig_profile: str | None = None


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The nodes that a flavor is declared to consist of: `count` nodes of `allocatable` each (design section 7)."""

    count: int
    allocatable: Resources
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class FlavorPolicy:
    """A ResourceFlavor of one cluster. `product` None = CPU only. `speed_permille` is relative to the price book's
    reference for durations: 1000 = as declared, 2000 = twice as fast."""

    name: FlavorName
    labels: tuple[tuple[str, str], ...]
    product: ProductName | None
    purchase: Purchase
    speed_permille: int
    nodes: NodeShape | None = None


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where a worker's read-only kubeconfig lies: a Secret of the hub (namespace/name, key) or a file."""

    secret_namespace: str | None = None
    secret_name: str | None = None
    secret_key: str = "kubeconfig"
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterPolicy:
    """`site` is what is attested about the place; what is not known there denies wherever a rule asks for it."""

    name: ClusterName
    provider: str
    region: RegionName
    site: Place
    flavors: Mapping[FlavorName, FlavorPolicy]
    credentials: Credentials
    line: str = ""


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """Defaults of a workload class. `delay_price_usd_micro_per_hour` is the cost of one hour of waiting, a workload."""

    workload_class: WorkloadClass
    delay_price_usd_micro_per_hour: int
    patience_s: int
    default_duration_s: int
    preemptible: bool
    checkpoint_required: bool
    may_burst: bool
    look_ahead: int = 0
    """How many workloads of the class may stand nominated on a cluster for capacity that others still use there."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """A ClusterQueue of the plan. `default_class` stands where a workload names none.

    `default_labels` stand where a job names no data sets; empty = UNLABELLED (residency.md section 4.3).
    """

    name: QueueName
    default_class: WorkloadClass
    default_labels: tuple[DataLabel, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSet:
    """A catalog entry. `size_bytes` None = unknown. Replicas are clusters or stores that hold all of it.

    `labels` are its own; what it inherits is `residency.derivation`'s to say, since a transformation may take labels
    off for a while. `base`: a base image or public weights, which add nothing to what is made with them.
    """

    name: DataSetName
    labels: tuple[DataLabel, ...]
    size_bytes: int | None
    replica_clusters: tuple[ClusterName, ...]
    replica_stores: tuple[StoreName, ...]
    derived_from: tuple[DataSetName, ...] = ()
    made: Made | None = None
    base: bool = False
    persons: int | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """A place that holds data sets, checkpoints or outputs; `site` is what is attested about it."""

    name: StoreName
    provider: str
    region: RegionName
    site: Place


@dataclass(frozen=True, slots=True)
class ComputePrice:
    provider: str
    region: RegionName
    product: str
    purchase: Purchase
    unit: PriceUnit
    usd_micro_per_hour: int
    source: str
    dated: date


@dataclass(frozen=True, slots=True)
class EgressPrice:
    """Moving data from one region to another. `usd_micro_per_gb` is per 10^9 bytes; bandwidth may be unknown."""

    from_region: RegionName
    to_region: RegionName
    usd_micro_per_gb: int
    bandwidth_mbit_s: int | None
    source: str
    dated: date


@dataclass(frozen=True, slots=True)
class PriceBook:
    max_age_days: int
    compute: Mapping[tuple[str, str, str, str], ComputePrice]
    """Keyed by (provider, region, product or "cpu", purchase)."""
    egress: Mapping[tuple[str, str], EgressPrice]


@dataclass(frozen=True, slots=True)
class Limits:
    """Numbers that rule the daemon itself, all from fleet.yaml's `limits`."""

    silence_limit_s: int = 60
    hold_ttl_s: int = 300
    stranded_permille: int = 100
    """Share of a stranded GPU's price that a placement which breaks an empty node is charged (best fit)."""
    max_nominations: int = 4
    """Upper bound of an add-only nomination list; the API allows 20."""
    outstanding_nominations: int | None = None
    """How many nominations of the hub may wait for their cluster at a time (core/outstanding.py); None = no bound."""


@dataclass(frozen=True, slots=True)
class Policy:
    digest: str
    products: Mapping[ProductName, Product]
    clusters: Mapping[ClusterName, ClusterPolicy]
    classes: Mapping[WorkloadClass, ClassPolicy]
    queues: Mapping[QueueName, QueuePolicy]
    data_sets: Mapping[DataSetName, DataSet]
    stores: Mapping[StoreName, Store]
    labels: Mapping[DataLabel, str]
    """Declared data labels with the line of each; what they mean is in `residency`."""
    prices: PriceBook
    limits: Limits
    loaded_from: str = ""
    compiled_at: datetime | None = None
    residency: Bundle = NO_LAW
    """The law. Without rules nothing is permitted."""
    seal: Seal = UNSEALED
    """Who vouches for it, and since when."""
