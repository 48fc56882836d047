"""A small world for tests of the decision core: every builder has defaults that fit, a test names what matters.

`world()` is two clusters with the same H100 nodes; `onprem` in Germany holds the data, `cloud` in Finland costs less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from dispatcher.core.decide import decide
from dispatcher.core.decision import Candidate, Decision, Reason
from dispatcher.core.ids import (
    ClusterName,
    DataLabel,
    DataSetName,
    DecisionId,
    FlavorName,
    ProductName,
    QueueName,
    RegionName,
    StoreName,
    WorkloadUid,
)
from dispatcher.core.policy import (
    UNLABELLED,
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
    Purchase,
    QueuePolicy,
    Store,
)
from dispatcher.core.products import BUILTIN_PRODUCTS, PRODUCT_LABEL
from dispatcher.core.resources import Resources
from dispatcher.core.snapshot import (
    ClusterQueueView,
    ClusterSnapshot,
    CohortView,
    FlavorView,
    Hold,
    Link,
    LocalQueueView,
    MultiKueueClusterView,
    NodeView,
    Quota,
    ResourceGroup,
    Snapshot,
    Taint,
    WorkerCopy,
    WorkerView,
    link_of,
)
from dispatcher.core.workload import DataUse, Declaration, PodSet, Request, Requirement, Toleration, WorkloadClass
from residency.bundle import Bundle, bundle_of
from residency.clauses import Clause, Group, Operator, Quantifier
from residency.facts import Attestation, Kind, Place
from residency.rules import Rule
from residency.vocabulary import At, Effect, Flow

NOW = datetime(2027, 2, 1, 10, 0, tzinfo=UTC)
TODAY = NOW.date()
USD = 1_000_000
GPU = "nvidia.com/gpu"
H100 = "NVIDIA-H100-80GB-HBM3"
GIB = 2**30
GB = 10**9
FLAVOR = FlavorName("h100")
QUEUE = QueueName("training")


def res(gpu: int = 0, cpu: int = 8, memory: int = 32, **more: int) -> Resources:
    """CPU in cores, memory in GiB; other resources by keyword (`pods=110`), whole GPUs by `gpu`."""
    amounts = {"cpu": cpu * 1000, "memory": memory * GIB, **more}
    if gpu:
        amounts[GPU] = gpu
    return Resources.of(amounts)


def pods(
    count: int = 1,
    gpu: int = 8,
    *,
    name: str = "main",
    product: str | None = H100,
    tolerations: Sequence[Toleration] = (),
    selector: Sequence[Requirement] = (),
    terms: Sequence[Sequence[Requirement]] = (),
    per_pod: Resources | None = None,
) -> PodSet:
    wanted = (Requirement(PRODUCT_LABEL, "In", (product,)),) if product and gpu else ()
    return PodSet(
        name, count, per_pod or res(gpu), (*wanted, *selector), tuple(tuple(t) for t in terms), tuple(tolerations)
    )


def request(name: str = "job-a", *pod_sets: PodSet, **over: object) -> Request:
    """A training request of queue `training`; keyword arguments go to the declaration or, by name, to the request."""
    fields = {f: over.pop(f) for f in tuple(over) if f in Request.__dataclass_fields__}
    base = Request(
        uid=WorkloadUid(f"uid-{name}"),
        namespace="team",
        name=name,
        job_kind="Job",
        job_name=name,
        local_queue="main",
        hub_queue=QUEUE,
        priority=0,
        created_at=NOW - timedelta(minutes=5),
        waiting_since=NOW - timedelta(minutes=4),
        resource_version="7",
        pod_sets=pod_sets or (pods(),),
        declared=replace(Declaration(workload_class=WorkloadClass.TRAINING, expected_duration_s=3600), **over),  # type: ignore[arg-type]
        listed_clusters=(ClusterName("cloud"), ClusterName("onprem"), ClusterName("x"), ClusterName("y")),
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def uses(*names: str | tuple[str, int]) -> tuple[DataUse, ...]:
    return tuple(DataUse(DataSetName(n[0]), n[1]) if isinstance(n, tuple) else DataUse(DataSetName(n)) for n in names)


# --- workers -----------------------------------------------------------------------------------------------------


def node(
    name: str, gpu: int = 8, used: int = 0, *, labels: Mapping[str, str] | None = None, **over: object
) -> NodeView:
    """A node of 64 cores, 512 GiB and 110 pods with `gpu` GPUs of which `used` are in use."""
    merged = {"pool": "gpu", **({PRODUCT_LABEL: H100} if gpu else {}), **(labels or {})}
    base = NodeView(
        name,
        tuple(sorted(merged.items())),
        res(gpu, cpu=64, memory=512, pods=110),
        Resources.of({GPU: used} if used else {}),
    )
    return replace(base, **over)  # type: ignore[arg-type]


def nodes(count: int, gpu: int = 8, used: int = 0, prefix: str = "n", **over: object) -> tuple[NodeView, ...]:
    return tuple(node(f"{prefix}{i:03d}", gpu, used, **over) for i in range(count))  # type: ignore[arg-type]


def quota(
    gpu: int,
    *,
    flavor: str = FLAVOR,
    used: int = 0,
    borrow: int | None = None,
    lend: int | None = None,
    resources: Mapping[str, int] | None = None,
) -> tuple[Quota, ...]:
    """GPU quota with CPU and memory in plenty, so that GPUs decide; `resources` adds or replaces nominal amounts."""
    plenty = {"cpu": 10_000_000, "memory": 10**16, GPU: gpu, **(resources or {})}
    return tuple(
        Quota(
            FlavorName(flavor),
            name,
            nominal,
            borrow if name == GPU else None,
            lend if name == GPU else None,
            used if name == GPU else 0,
        )
        for name, nominal in sorted(plenty.items())
    )


def queue(name: str = QUEUE, quotas: Sequence[Quota] = (), **over: object) -> ClusterQueueView:
    """One resource group over the flavors of its quotas, in their order."""
    flavors = tuple(dict.fromkeys(q.flavor for q in quotas))
    covered = tuple(sorted({q.resource for q in quotas}))
    groups = (ResourceGroup(covered, flavors),) if quotas else ()
    base = ClusterQueueView(QueueName(name), active=True, groups=groups, quotas=tuple(quotas))
    return replace(base, **over)  # type: ignore[arg-type]


def flavor(
    name: str = FLAVOR,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    tolerations: Sequence[tuple[str, str, str, str]] = (),
) -> FlavorView:
    known = {PRODUCT_LABEL: H100} if labels is None else labels
    return FlavorView(FlavorName(name), tuple(sorted(known.items())), tuple(taints), tuple(tolerations))


def worker(
    name: str = "onprem",
    node_views: Sequence[NodeView] | None = None,
    queues: Sequence[ClusterQueueView] | None = None,
    flavors: Sequence[FlavorView] | None = None,
    copies: Sequence[WorkerCopy] = (),
    cohorts: Sequence[CohortView] = (),
    **over: object,
) -> WorkerView:
    node_views = nodes(2) if node_views is None else node_views
    total = sum(n.allocatable.get(GPU) for n in node_views)
    queues = [queue(quotas=quota(total))] if queues is None else queues
    flavors = [flavor()] if flavors is None else flavors
    base = WorkerView(
        cluster=ClusterName(name),
        synced=True,
        observed_at=NOW - timedelta(seconds=2),
        namespaces=("default", "team"),
        local_queues={("team", "main"): LocalQueueView("team", "main", queues[0].name)} if queues else {},
        queues={q.name: q for q in sorted(queues, key=lambda q: q.name)},
        cohorts={c.name: c for c in sorted(cohorts, key=lambda c: c.name)},
        flavors={f.name: f for f in sorted(flavors, key=lambda f: f.name)},
        nodes=tuple(node_views),
        copies={(c.namespace, c.name): c for c in sorted(copies, key=lambda c: (c.namespace, c.name))},
    )
    return replace(base, **over)  # type: ignore[arg-type]


def copy(
    name: str,
    gpu: int = 8,
    count: int = 1,
    *,
    priority: int = 0,
    reserved: bool = True,
    bound: int | None = None,
    ours: bool = True,
    queue_name: str = QUEUE,
    flavor_name: str = FLAVOR,
    **over: object,
) -> WorkerCopy:
    base = WorkerCopy(
        uid=f"w-{name}",
        namespace="team",
        name=name,
        ours=ours,
        local_queue="main",
        cluster_queue=QueueName(queue_name),
        priority=priority,
        quota_reserved_at=NOW - timedelta(minutes=1) if reserved else None,
        pod_sets=(("main", count, res(gpu), FlavorName(flavor_name)),),
        bound_pods=(count if reserved else 0) if bound is None else bound,
    )
    return replace(base, **over)  # type: ignore[arg-type]


def seen(view: WorkerView, **over: object) -> ClusterSnapshot:
    hub = MultiKueueClusterView(view.cluster, active=True, reason="Active")
    base = ClusterSnapshot(view.cluster, link_of(view, 60, NOW), hub, view)
    return replace(base, **over)  # type: ignore[arg-type]


def blind(name: str) -> ClusterSnapshot:
    hub = MultiKueueClusterView(ClusterName(name), active=True)
    return ClusterSnapshot(ClusterName(name), Link.BLIND, hub, None)


def snapshot(*views: WorkerView | ClusterSnapshot, holds: Sequence[Hold] = ()) -> Snapshot:
    clusters = [view if isinstance(view, ClusterSnapshot) else seen(view) for view in views]
    return Snapshot(tuple(sorted(clusters, key=lambda c: c.name)), tuple(holds))


def hold(name: str = "other", cluster: str = "onprem", gpu: int = 8, count: int = 1, **over: object) -> Hold:
    base = Hold(
        workload=WorkloadUid(f"uid-{name}"),
        workload_key=f"team/{name}",
        cluster=ClusterName(cluster),
        queue=QUEUE,
        decision=DecisionId(f"d-{name}"),
        usage=(("main", count, res(gpu), FLAVOR),),
        made_at=NOW - timedelta(seconds=3),
        expires_at=NOW + timedelta(minutes=5),
    )
    return replace(base, **over)  # type: ignore[arg-type]


# --- policy ------------------------------------------------------------------------------------------------------


def flavor_policy(
    name: str = FLAVOR,
    product: str | None = "h100-80gb",
    speed: int = 1000,
    shape: NodeShape | None = None,
    purchase: Purchase = Purchase.ON_DEMAND,
    labels: Mapping[str, str] | None = None,
) -> FlavorPolicy:
    known = {PRODUCT_LABEL: H100} if labels is None else labels
    return FlavorPolicy(
        FlavorName(name),
        tuple(sorted(known.items())),
        ProductName(product) if product else None,
        purchase,
        speed,
        shape,
    )


def place(name: str, country: str | None = "DE", until: date | None = TODAY + timedelta(days=90)) -> Place:
    """What is attested of a place; `until` is the last day of it."""
    ends = datetime(until.year, until.month, until.day, tzinfo=UTC) + timedelta(days=1) if until else None
    return Place(
        name,
        country=country,
        site=f"p-{name}/r-{name}",
        log_sink=(country,) if country else None,
        attested=Attestation("platform", ends) if ends else None,
    )


def store(name: str, country: str = "DE", region: str | None = None) -> Store:
    return Store(StoreName(name), "p", RegionName(region or "r-store"), replace(place(name, country), kind=Kind.STORE))


def site(
    name: str,
    country: str | None = "DE",
    flavors: Sequence[FlavorPolicy] | None = None,
    until: date | None = TODAY + timedelta(days=90),
    region: str | None = None,
) -> ClusterPolicy:
    planned = [flavor_policy()] if flavors is None else flavors
    return ClusterPolicy(
        name=ClusterName(name),
        provider=f"p-{name}",
        region=RegionName(region or f"r-{name}"),
        site=place(name, country, until),
        flavors={f.name: f for f in planned},
        credentials=Credentials(file="unused"),
        line=f"fleet.yaml:{len(name)}:3",
    )


def compute(
    name: str,
    usd_per_hour: int,
    product: str = "h100-80gb",
    unit: PriceUnit = PriceUnit.GPU_HOUR,
    dated: date = TODAY,
    purchase: Purchase = Purchase.ON_DEMAND,
    region: str | None = None,
) -> ComputePrice:
    return ComputePrice(
        f"p-{name}", RegionName(region or f"r-{name}"), product, purchase, unit, usd_per_hour, "list", dated
    )


def egress(
    source: str, target: str, usd_micro_per_gb: int, bandwidth: int | None = None, dated: date = TODAY
) -> EgressPrice:
    return EgressPrice(RegionName(source), RegionName(target), usd_micro_per_gb, bandwidth, "list", dated)


def data(
    name: str,
    size: int | None = GB,
    labels: Sequence[str] = ("internal",),
    clusters: Sequence[str] = (),
    stores: Sequence[str] = (),
    derived_from: Sequence[str] = (),
) -> DataSet:
    return DataSet(
        DataSetName(name),
        tuple(DataLabel(label) for label in labels),
        size,
        tuple(ClusterName(c) for c in clusters),
        tuple(StoreName(s) for s in stores),
        tuple(DataSetName(d) for d in derived_from),
    )


EVERYWHERE = (Flow.CHECKPOINT, Flow.OUTPUT, Flow.LOGS, Flow.REMOTE_ACCESS)


@dataclass(frozen=True)
class LabelRule:
    """A label with the countries where such data may be processed and cached (None: anywhere); its other flows are
    free, so that a test of one country meets one rejection."""

    label: DataLabel
    countries: tuple[str, ...] | None

    def rules(self) -> tuple[Rule, ...]:
        line = At("residency/rules.yaml", len(self.label), 5)
        clause = Clause("destination.country", Operator.IN, self.countries or ("--",), at=line)
        when = () if self.countries is None else (Group(Quantifier.ALL, (clause,)),)
        rule = Rule(f"only-{self.label}", (self.label,), (Flow.PROCESS, Flow.CACHE), Effect.PERMIT, when, at=line)
        return (rule, Rule(f"else-{self.label}", (self.label,), EVERYWHERE, Effect.PERMIT, at=line))


def rule(label: str, *countries: str, anywhere: bool = False) -> LabelRule:
    return LabelRule(DataLabel(label), None if anywhere else tuple(sorted(countries)))


def law(rules: Sequence[LabelRule], *more: Rule) -> Bundle:
    """The bundle of some labels' rules and further ones."""
    return bundle_of(Bundle(rules=(*more, *(found for one in rules for found in one.rules()))))


ANYWHERE = rule("unlabelled", anywhere=True)


def plan(workload_class: WorkloadClass, delay: int = 6 * USD, **over: object) -> ClassPolicy:
    base = ClassPolicy(workload_class, delay, 120, 7200, preemptible=True, checkpoint_required=False, may_burst=False)
    return replace(base, **over)  # type: ignore[arg-type]


def policy(
    sites: Sequence[ClusterPolicy] | None = None,
    compute_prices: Sequence[ComputePrice] | None = None,
    egress_prices: Sequence[EgressPrice] = (),
    data_sets: Sequence[DataSet] = (),
    labels: Sequence[LabelRule] = (),
    stores: Sequence[Store] = (),
    limits: Limits | None = None,
    unlabelled: LabelRule | None = ANYWHERE,
    default_labels: Sequence[str] = (),
) -> Policy:
    """The default rule of unlabelled data is "anywhere", so that only tests of the law meet the law."""
    sites = [site("onprem", "DE"), site("cloud", "FI")] if sites is None else sites
    if compute_prices is None:
        compute_prices = [compute(s.name, 3 * USD, region=s.region) for s in sites]
    rules = [*(labels or [rule("internal", anywhere=True)])]
    if unlabelled is not None and not any(r.label == UNLABELLED for r in rules):
        rules.append(unlabelled)
    return Policy(
        digest="policy-1",
        products=BUILTIN_PRODUCTS,
        clusters={s.name: s for s in sorted(sites, key=lambda s: s.name)},
        classes={c: plan(c) for c in WorkloadClass},
        queues={QUEUE: QueuePolicy(QUEUE, WorkloadClass.TRAINING, tuple(DataLabel(x) for x in default_labels))},
        data_sets={d.name: d for d in data_sets},
        stores={s.name: s for s in stores},
        labels={r.label: f"data.yaml:{at}:3" for at, r in enumerate(rules, 1)},
        prices=PriceBook(
            max_age_days=30,
            compute={(p.provider, p.region, p.product, p.purchase): p for p in compute_prices},
            egress={(p.from_region, p.to_region): p for p in egress_prices},
        ),
        limits=limits or Limits(),
        residency=law(rules),
    )


# --- reading a decision ------------------------------------------------------------------------------------------


def decided(
    wanted: Request, *views: WorkerView | ClusterSnapshot, rules: Policy | None = None, holds: Sequence[Hold] = ()
) -> Decision:
    return decide(wanted, snapshot(*views, holds=holds), rules or policy(), NOW)


def on(decision: Decision, cluster: str) -> Candidate:
    found = decision.candidate(ClusterName(cluster))
    assert found is not None, f"{cluster} is no candidate"
    return found


def reasons(decision: Decision, cluster: str) -> list[Reason]:
    return [rejection.reason for rejection in on(decision, cluster).rejections]


def detail_of(decision: Decision, cluster: str, reason: Reason):  # type: ignore[no-untyped-def]
    found = [r for r in on(decision, cluster).rejections if r.reason is reason]
    assert found, f"{cluster} has no {reason}: {on(decision, cluster).rejections}"
    return found[0].detail
