"""fleet.yaml: what there is. Clusters, what is attested about them, flavors and nodes, and the daemon's limits."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from dispatcher.config.values import (
    Boolean,
    Choice,
    Country,
    Day,
    DnsLabel,
    DnsName,
    Duration,
    Integer,
    LabelKey,
    LabelValue,
    Percent,
    Permille,
    Positive,
    Quantity,
    ResourceName,
    Size,
    Strict,
    Text,
    Word,
    fail,
    short_form,
)
from dispatcher.core.policy import Purchase
from dispatcher.core.resources import CPU, MEMORY, PODS, Resources, parse_quantity
from dispatcher.core.workload import WorkloadClass
from residency.obligations import Duty

POD_LIMIT = "110"
"""Pods of a node where none is written: a kubelet's default."""
MAX_NODES = 10_000
MOST_ROUND_TRIP_MS = 60_000


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Provider(Strict):
    """Who runs clusters or stores, and sends the bill."""

    description: Annotated[Text | None, Field(description="For people.")] = None


class Region(Strict):
    """A place that prices and residency speak of."""

    country: Annotated[Country, Field(description="ISO 3166-1 alpha-2 code of the country it lies in.")]
    carbon_g_per_kwh: Annotated[
        Integer | None, Field(description="Grams of CO2 a kWh of its grid, for prices.yaml's carbon price.")
    ] = None


class RoundTripRow(Strict):
    """How long an answer takes between two regions, or within one, as somebody measured it. The same both ways."""

    between: Annotated[
        tuple[Word, ...],
        Field(description="Two of `regions`; one of them twice: within it.", min_length=2, max_length=2),
    ]
    ms: Annotated[Positive, Field(description="Milliseconds there and back.")]
    source: Annotated[Text, Field(description="Who measured it, and how.")]
    dated: Annotated[Day, Field(description="When.")]

    @model_validator(mode="after")
    def _of_this_planet(self) -> RoundTripRow:
        if self.ms > MOST_ROUND_TRIP_MS:
            raise fail(f"more than {MOST_ROUND_TRIP_MS} ms, a minute", "write milliseconds, such as 14")
        return self


class OwnProduct(Strict):
    """An accelerator that the built-in table does not know, or another spelling of one that it knows."""

    memory_gib: Annotated[Positive, Field(description="Memory of one card or slice, GiB as sold.")]
    aliases: Annotated[tuple[Text, ...], Field(description="Spellings that mean this product; never prefixes.")] = ()
    mig_profile: Annotated[Text | None, Field(description="Such as 1g.10gb when this is a MIG slice.")] = None


class Limits(Strict):
    """Numbers that rule the daemon itself."""

    silence_limit: Annotated[Duration, Field(description="A worker silent for longer is stale: not nominated.")] = 60
    hold_ttl: Annotated[Duration, Field(description="How long promised capacity is held for a nomination.")] = 300
    stranded_permille: Annotated[
        Integer, Field(description="Share of a stranded GPU's price that breaking an empty node is charged, in 1/1000.")
    ] = 100
    max_nominations: Annotated[Positive, Field(description="Longest nomination list of one attempt; at most 20.")] = 4
    outstanding_nominations: Annotated[
        Positive | None,
        Field(description="Nominations without a cluster yet, of the whole hub, at a time; absent = no bound."),
    ] = None
    mass_loss: Annotated[
        Percent, Field(description="More clusters than this lost at once: nothing is done about it, somebody is told.")
    ] = 50
    borrowed_mean_time: Annotated[
        Duration | None,
        Field(description="How long borrowed quota lasts on average; absent = as good as a queue's own."),
    ] = None

    @model_validator(mode="after")
    def _within_the_api(self) -> Limits:
        if self.max_nominations > 20:
            raise fail("max_nominations is more than the API's 20", "write 20 or less")
        return self


class Hub(Strict):
    """How the hub's Kueue objects are rendered. The hub is a waiting room: workers, not its quota, limit what runs."""

    admission_check: Annotated[DnsLabel, Field(description="Name of the MultiKueue check and its config.")] = "entrepot"
    waiting_factor: Annotated[
        Positive,
        Field(description="Hub quota of each queue, in fleets: waiting work holds hub quota, and must not block more."),
    ] = 4

    @model_validator(mode="after")
    def _sane(self) -> Hub:
        if self.waiting_factor > 100:
            raise fail("a waiting_factor of more than 100", "the API's quotas have an end; write 4")
        return self


class Attested(Strict):
    """Who vouches, and for how long: until a day, or for some time from the day on which it was looked at."""

    by: Annotated[Text, Field(description="Who vouches for the site facts.")]
    until: Annotated[Day | None, Field(description="Last day on which they hold.")] = None
    at: Annotated[Day | None, Field(description="Day on which they were looked at.")] = None
    max_age: Annotated[Duration | None, Field(description="They hold for so long from then on.")] = None

    @model_validator(mode="after")
    def _ends(self) -> Attested:
        if self.until is None and (self.at is None or self.max_age is None):
            raise fail("an attestation without end", "write until:, or at: and max_age:")
        return self


class RecordEntry(Strict):
    """A certificate, contract or licence: just its name, or with its last day."""

    model_config = short_form(r"\S", "Just its name.")

    name: Annotated[Text, Field(description="Such as iso-27001.")]
    until: Annotated[Day | None, Field(description="Last day on which it counts.")] = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value


class Site(Strict):
    """What is attested about a site. What is not written is not known, and denies wherever a rule asks for it."""

    country: Annotated[Country | None, Field(description="Where the machines stand.")] = None
    subdivision: Annotated[Text | None, Field(description="Part of the country, such as US-OH.")] = None
    customs_territory: Annotated[Text | None, Field(description="Such as EU, XI for Northern Ireland, US.")] = None
    location_precision: Annotated[Text | None, Field(description="How exactly the place is known: site, city.")] = None
    operator_country: Annotated[Country | None, Field(description="Where the operating company sits.")] = None
    parent_country: Annotated[Country | None, Field(description="Where its ultimate parent company sits.")] = None
    control_plane: Annotated[tuple[Country, ...] | None, Field(description="Countries of its control plane.")] = None
    support_access: Annotated[
        tuple[Country, ...] | None, Field(description="Countries from which operators can reach the machines.")
    ] = None
    support_nationalities: Annotated[
        tuple[Country, ...] | None, Field(description="Nationalities of those operators.")
    ] = None
    us_persons_only: Annotated[Boolean | None, Field(description="true: only US persons operate it.")] = None
    key_custody: Annotated[Text | None, Field(description="Who holds the encryption keys.")] = None
    key_country: Annotated[Country | None, Field(description="Where those keys are.")] = None
    log_sink: Annotated[tuple[Country, ...] | None, Field(description="Countries where its logs end.")] = None
    object_store: Annotated[tuple[Country, ...] | None, Field(description="Countries of its object store.")] = None
    certifications: Annotated[
        tuple[RecordEntry, ...] | None, Field(description="Such as iso-27001, or {name: c5, until: 2027-03-31}.")
    ] = None
    records: Annotated[
        tuple[RecordEntry, ...] | None, Field(description="Contracts and licences that count here, by name.")
    ] = None
    tenancy: Annotated[Text | None, Field(description="shared or dedicated.")] = None
    fulfils: Annotated[
        tuple[Choice[Duty], ...] | None, Field(description="Obligations that it fulfils, such as encrypt_at_rest.")
    ] = None
    attested: Annotated[Attested | None, Field(description="By whom, and until when.")] = None


class CredentialsRef(Strict):
    """Where the worker's read-only kubeconfig lies: a Secret of the hub, or a file."""

    secret: Annotated[Text | None, Field(description="namespace/name of a Secret on the hub.")] = None
    key: Annotated[Text, Field(description="Key within the Secret.")] = "kubeconfig"
    file: Annotated[Text | None, Field(description="A path that the daemon can read.")] = None

    @model_validator(mode="after")
    def _one_place(self) -> CredentialsRef:
        if (self.secret is None) == (self.file is None):
            raise fail("exactly one of 'secret' and 'file' is needed", "write secret: entrepot-system/NAME-entrepot")
        if self.secret is not None and (self.secret.count("/") != 1 or not all(self.secret.split("/"))):
            raise fail(f"secret '{self.secret}' is not namespace/name", "write secret: entrepot-system/NAME-entrepot")
        return self


class TaintOf(Strict):
    key: Annotated[LabelKey, Field(description="Taint key.")]
    value: Annotated[LabelValue, Field(description="Taint value.")] = ""
    effect: Annotated[Choice[Effect], Field(description="NoSchedule, PreferNoSchedule or NoExecute.")]


class Nodes(Strict):
    """The nodes that a flavor is declared to consist of: equal ones."""

    count: Annotated[Integer, Field(description="How many there are; 0 for a flavor that only bursts.")]
    capacity: Annotated[
        dict[ResourceName, Quantity],
        Field(description="Allocatable resources of one node: cpu, memory, nvidia.com/gpu, nvidia.com/mig-..."),
    ]

    @model_validator(mode="after")
    def _as_nodes_are(self) -> Nodes:
        if self.count > MAX_NODES:
            raise fail(f"{self.count} nodes of one kind", f"more than {MAX_NODES} is taken for a mistake")
        missing = [name for name in (CPU, MEMORY) if name not in self.capacity]
        if missing:
            raise fail(f"nodes without {' and '.join(missing)}", "write capacity: {cpu: 64, memory: 512Gi}")
        for name, text in self.capacity.items():
            if name != CPU and parse_quantity(text).denominator != 1:
                raise fail(f"{name}: '{text}' is not a whole number", "write a quantity such as 8 or 512Gi")
        return self

    def resources(self) -> Resources:
        """One node's allocatable resources; the pod limit of a kubelet (110) where none is written."""
        return Resources.parse({PODS: POD_LIMIT, **self.capacity})


class Reservation(Strict):
    """Contracted capacity: paid for whether used or not."""

    nodes: Annotated[Positive, Field(description="How many of the flavor's nodes are under contract.")]
    until: Annotated[Day, Field(description="Last day of the contract.")]


class Flavor(Strict):
    """A ResourceFlavor: equal nodes of one kind, told apart by node labels."""

    product: Annotated[
        Text | None, Field(description="Canonical GPU product, such as h100-80gb, or a MIG slice; absent = CPU only.")
    ] = None
    labels: Annotated[dict[LabelKey, LabelValue], Field(description="Node labels that select the nodes; 1 to 8.")]
    taints: Annotated[tuple[TaintOf, ...], Field(description="Taints on the nodes.")] = ()
    purchase: Annotated[Choice[Purchase], Field(description="How the capacity is paid for.")]
    speed: Annotated[Permille, Field(description="Relative speed: 2 halves the declared durations.")] = 1000
    class_speeds: Annotated[
        dict[Choice[WorkloadClass], Permille], Field(description="Speed of workload classes that differ from `speed`.")
    ] = {}
    watts: Annotated[
        Positive | None,
        Field(
            description="Draw under load of one GPU (MIG slice, vCPU) with its share of the node; absent = not known."
        ),
    ] = None
    mean_time_to_failure: Annotated[
        Duration | None, Field(description="Between failures of one node; absent = failures weigh nothing.")
    ] = None
    nodes: Annotated[Nodes, Field(description="The nodes as declared.")]
    reserved: Annotated[Reservation | None, Field(description="How much is under contract, until when.")] = None

    @model_validator(mode="after")
    def _api_limits(self) -> Flavor:
        if not 1 <= len(self.labels) <= 8:
            raise fail(f"{len(self.labels)} labels, where 1 to 8 are needed", "such as nvidia.com/gpu.product: NAME")
        if len(self.taints) > 8:
            raise fail("more than 8 taints", "a ResourceFlavor takes at most 8")
        return self


class NodePool(Strict):
    """A pool of cloud nodes that may be bought for a while and returned."""

    flavor: Annotated[DnsName, Field(description="The flavor whose kind of node it adds.")]
    max_nodes: Annotated[Positive, Field(description="Never more than this at a time.")]
    purchase: Annotated[Choice[Purchase], Field(description="How a bought node is paid for.")] = Purchase.ON_DEMAND
    boot_time: Annotated[
        Duration, Field(description="From purchase until a node takes pods: for bursts, not read yet.")
    ] = 600

    @model_validator(mode="after")
    def _sane(self) -> NodePool:
        if self.max_nodes > MAX_NODES:
            raise fail(f"{self.max_nodes} nodes of one kind", f"more than {MAX_NODES} is taken for a mistake")
        return self


class Cluster(Strict):
    """A worker cluster, named as its MultiKueueCluster."""

    provider: Annotated[Word, Field(description="One of `providers`.")]
    region: Annotated[Word, Field(description="One of `regions`.")]
    site: Annotated[Site, Field(description="What is attested about the site.")]
    credentials: Annotated[CredentialsRef, Field(description="The daemon's own, read-only access.")]
    flavors: Annotated[dict[DnsName, Flavor], Field(description="Its ResourceFlavors, in the order to try them.")]
    node_pools: Annotated[dict[DnsName, NodePool], Field(description="Pools that may burst.")] = {}
    data_cache: Annotated[
        Size | None,
        Field(description="Cache that its workloads share: a data set that fits is read once; absent = none."),
    ] = None
    energy_factor: Annotated[
        Permille | None,
        Field(description="Facility overhead on the energy of the nodes (PUE), such as 1.2; absent = not known."),
    ] = None

    @model_validator(mode="after")
    def _has_flavors(self) -> Cluster:
        if not self.flavors:
            raise fail("a cluster without flavors", "describe at least one kind of node")
        if self.energy_factor is not None and self.energy_factor < 1000:
            raise fail("an energy_factor below 1: a site that draws less than its nodes", "write its PUE, such as 1.2")
        return self


class FleetFile(Strict):
    """The clusters of the fleet and everything that is said of them."""

    limits: Annotated[Limits, Field(description="How patient the daemon is, and what it may do.")] = Limits()
    hub: Annotated[Hub, Field(description="How the hub's objects are rendered.")] = Hub()
    providers: Annotated[dict[Word, Provider], Field(description="Who runs clusters and stores.")]
    regions: Annotated[dict[Word, Region], Field(description="Places that prices and residency speak of.")]
    round_trips: Annotated[
        tuple[RoundTripRow, ...], Field(description="Between users' regions and clusters'; no row: not known, never 0.")
    ] = ()
    products: Annotated[
        dict[DnsName, OwnProduct], Field(description="Accelerators beside the built-in table, by canonical name.")
    ] = {}
    clusters: Annotated[
        dict[DnsLabel, Cluster], Field(description="Worker clusters by MultiKueueCluster name, at most 20.")
    ]

    @model_validator(mode="after")
    def _a_fleet(self) -> FleetFile:
        if not 1 <= len(self.clusters) <= 20:
            raise fail(f"{len(self.clusters)} clusters, where a MultiKueueConfig takes 1 to 20", "split the fleet")
        return self
