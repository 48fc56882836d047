"""The compiled blueprint: frozen, digested, with every default filled in. `dispatcher/config` makes it from YAML.

Money is integer micro-USD; per-unit prices say their unit in the name. A price that is not in the book is absent here
and therefore unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from dispatcher.core.order import DEFAULT_RULES, OrderRules
from dispatcher.core.resources import Resources
from dispatcher.core.seal import UNSEALED, Seal
from dispatcher.core.snapshot import Taint
from dispatcher.core.workload import WorkloadClass
from residency.bundle import NO_LAW, Bundle
from residency.derivation import Made
from residency.facts import Place

UNLABELLED = DataLabel("unlabelled")
"""The label of data that nobody has classified. Without a rule of its own such data stays where it lies."""
DEFAULT_IDLE_NOTICE_S = 900


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
    reference for durations: 1000 = as declared, 2000 = twice as fast; `class_speeds` where a class runs otherwise."""

    name: FlavorName
    labels: tuple[tuple[str, str], ...]
    product: ProductName | None
    purchase: Purchase
    speed_permille: int
    nodes: NodeShape | None = None
    class_speeds: tuple[tuple[WorkloadClass, int], ...] = ()
    reserved_until: date | None = None
    """Last day of a contract over all its nodes, which is paid whether they are used or not."""
    watts: int | None = None
    """What one GPU (MIG slice, vCPU) draws under load, its share of the node included."""
    failure_s: int | None = None
    """Mean time between failures of one node."""

    def speed(self, workload_class: WorkloadClass | None) -> int:
        """Permille of the reference at which a class runs; of any other where none is known."""
        if not self.class_speeds:
            return self.speed_permille
        return next((speed for name, speed in self.class_speeds if name is workload_class), self.speed_permille)


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
    cache_bytes: int = 0
    """A cache that its workloads share: what fits is brought in once, whatever the number of reads. 0 = none."""
    energy_permille: int | None = None
    """Facility overhead on the energy of its nodes (PUE) in 1/1000."""
    grid_g_per_kwh: int | None = None
    """Grams of CO2 a kWh of its region's grid."""


class Away(StrEnum):
    """What becomes of work whose cluster cannot be reached: that may be lost, and the link to it may be."""

    STAY = "stay"
    ASK = "ask"
    """It stays, and its owner is told to decide."""
    MOVE = "move"
    """Its attempt is ended once the cluster has been away for long enough."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """`after_s` counts for MOVE only, from when the cluster counts as lost (footing.py)."""

    course: Away = Away.STAY
    after_s: int = 0


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
    checkpoint_interval_s: int | None = None
    """Where the owner says none; None = not known."""
    checkpoint_bytes: int | None = None
    checkpoint_write_s: int | None = None
    """How long the run stands still for one checkpoint. None: as long as its bytes take to their store."""
    output_bytes: int | None = None
    restart_s: int = 0
    """From an interruption until the work goes on where the checkpoint left it."""
    on_unreachable: Unreachable = Unreachable()
    idle_timeout_s: int | None = None
    """Unused for so long, its slice is freed after notice; None: it may be idle for ever (core/idle.py)."""
    idle_notice_s: int = DEFAULT_IDLE_NOTICE_S
    users: tuple[RegionName, ...] = ()
    """Where the people sit who wait for its answers (core/distance.py)."""
    max_round_trip_ms: int | None = None
    round_trip_price_usd_micro: int | None = None
    """What one millisecond of round trip costs an hour of the run; None: nearer is not worth more."""


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """A ClusterQueue of the plan. `default_class` stands where a workload names none.

    `default_labels` stand where a job names no data sets; empty = UNLABELLED (residency.md section 4.3).
    `idle_timeout_s` goes before that of the class, whichever class its work is of.
    """

    name: QueueName
    default_class: WorkloadClass
    default_labels: tuple[DataLabel, ...] = ()
    on_unreachable: Unreachable | None = None
    """None: as the class says."""
    idle_timeout_s: int | None = None


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
    objects: int | None = None
    """Of how many objects it consists in a store; None: as many as the store's usual size makes of it."""
    missing_stores: tuple[StoreName, ...] = ()
    """Declared replicas that are certainly not there (core/replicas.py): no sources."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the volumes behind one claim hold (core/claims.py): on each cluster a data set, or None for what is no data
    set of the catalog. A cluster that is not in it has no such volume, or nobody knows what is in it."""

    name: str
    """NAMESPACE/NAME."""
    holds: Mapping[ClusterName, DataSetName | None]
    line: str = ""


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Where a store's objects lie, and how they are looked for; `marker` is an object that a complete replica has."""

    url: str
    every_s: int
    endpoint: str | None = None
    region: str | None = None
    key: Credentials | None = None
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """A place that holds data sets, checkpoints or outputs; `site` is what is attested about it. `objects` None: its
    replicas are not looked for."""

    name: StoreName
    provider: str
    region: RegionName
    site: Place
    objects: ObjectSource | None = None


class CatalogStanding(StrEnum):
    """How well the endpoint is known that data sets come from."""

    READ = "read"
    OLD = "old"
    """It has not confirmed its last answer for longer than `max_age_s`: what it said is no longer known."""
    UNREAD = "unread"
    """It has given no good answer since the start: its data sets are not there at all."""


@dataclass(frozen=True, slots=True)
class CatalogSource:
    """An endpoint that answers data sets, and how it is asked. The URL holds no secret: the token lies elsewhere."""

    url: str
    every_s: int
    max_age_s: int
    token: Credentials | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """What is said of the endpoint beside the blueprint's files. A part of the policy, so that its answer, and that it
    has become old, are in every decision's digest and replay.

    `names` are the data sets that it alone has. `unknown` are those of which nothing may be concluded any more: where
    it is OLD, its own and everything that was made from them. Their labels stay as they were last known, so that what
    runs is judged by those; nothing new starts on them. `read_at` is set where it is OLD.
    """

    source: CatalogSource
    standing: CatalogStanding
    names: tuple[DataSetName, ...] = ()
    unknown: tuple[DataSetName, ...] = ()
    read_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ComputePrice:
    """`usd_micro_per_hour` is what the capacity costs, `marginal_usd_micro_per_hour` what using it costs where it is
    paid anyway. `minimum_billing_s` is the shortest time that is billed, `interruption_s` the mean time after which
    the provider takes one node back (spot)."""

    provider: str
    region: RegionName
    product: str
    purchase: Purchase
    unit: PriceUnit
    usd_micro_per_hour: int
    source: str
    dated: date
    minimum_billing_s: int = 0
    marginal_usd_micro_per_hour: int | None = None
    interruption_s: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What a route between two regions was seen to carry, and when."""

    mbit_s: int
    at: datetime


@dataclass(frozen=True, slots=True)
class EgressTier:
    """A price for the bytes above those of the tiers before, up to `up_to_bytes` of one transfer."""

    up_to_bytes: int
    usd_micro_per_gb: int


@dataclass(frozen=True, slots=True)
class EgressPrice:
    """Moving data from one region to another. `usd_micro_per_gb` is per 10^9 bytes; bandwidth may be unknown.

    Where there are `tiers`, it is the price of what lies beyond the last of them. `via` says which way it goes: over
    the internet, a peering, the provider's own network.
    """

    from_region: RegionName
    to_region: RegionName
    usd_micro_per_gb: int
    bandwidth_mbit_s: int | None
    source: str
    dated: date
    tiers: tuple[EgressTier, ...] = ()
    via: str = ""
    measured_at: datetime | None = None
    """When its bandwidth was measured; None: it is the declared one."""
    outdated_at: datetime | None = None
    """When it was measured last, where that is too long ago to count."""

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing, however much it is."""
        return not self.usd_micro_per_gb and not any(tier.usd_micro_per_gb for tier in self.tiers)


@dataclass(frozen=True, slots=True)
class RequestPrice:
    """What the stores of a provider in a region ask for requests, one an object; `object_bytes` is their usual size."""

    provider: str
    region: RegionName
    usd_micro_per_million_reads: int
    usd_micro_per_million_writes: int
    object_bytes: int
    source: str
    dated: date


@dataclass(frozen=True, slots=True)
class CarbonPrice:
    """What a tonne of CO2 weighs in a choice."""

    usd_micro_per_tonne: int
    source: str
    dated: date


@dataclass(frozen=True, slots=True)
class PriceBook:
    max_age_days: int
    compute: Mapping[tuple[str, str, str, str], ComputePrice]
    """Keyed by (provider, region, product or "cpu", purchase)."""
    egress: Mapping[tuple[str, str], EgressPrice]
    peerings: Mapping[tuple[str, str, str, str], EgressPrice] = field(default_factory=dict)
    """Routes between two providers with a price of their own: (provider, region) of source and target."""
    requests: Mapping[tuple[str, str], RequestPrice] = field(default_factory=dict)
    """Keyed by (provider, region). A store without one is not billed by the request."""
    carbon: CarbonPrice | None = None
    """None: it weighs nothing."""
    measured: Mapping[tuple[str, str], Measured] = field(default_factory=dict)
    """By regions of source and target. Of their routes alone: a peering is another way, and keeps what it declares."""
    measured_max_age_s: int = 0
    """After so long what was measured does not count any more."""
    unknown_home_usd_micro: int | None = None
    """What checkpoints or outputs of unknown size weigh in a choice; None: they reject."""


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
    mass_loss_percent: int = 50
    """More of the fleet than this lost at once is taken for a fault of our own (core/footing.py)."""
    reclaim_s: int | None = None
    """Mean time until a queue's owner takes back what was borrowed from it; None: borrowed quota is as good as own."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Between two regions, or within one, as somebody measured it; the same both ways. It does not grow old by itself:
    how far two places are apart is no price."""

    ms: int
    source: str
    dated: date


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
    catalog: Catalog | None = None
    """The endpoint that some data sets come from; None: all stand in the files."""
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """By NAMESPACE/NAME."""
    unbound_claims_allowed: bool = False
    """Whether a job may go anywhere with a claim of which `claims` says nothing."""
    order: OrderRules = DEFAULT_RULES
    """Who of those that wait goes first."""
    regions: tuple[RegionName, ...] = ()
    round_trips: Mapping[tuple[str, str], RoundTrip] = field(default_factory=dict)
    """Keyed by both regions, in order of their names."""

    def round_trip(self, one: RegionName, other: RegionName) -> RoundTrip | None:
        """None: nobody has measured it."""
        return self.round_trips.get((min(one, other), max(one, other)))
