"""What really happened in a world: when each job ran where, what that cost, and who was stopped for nothing.

The ledger is the witness of the world and its pace: it alone knows true durations. Nothing of it is shown to a
contender.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from connectors.embedded.objects import Workload
from connectors.embedded.witness import Happening
from connectors.embedded.world import World
from dispatcher.core.errors import Fatal
from dispatcher.core.ids import ClusterName, DataSetName, FlavorName
from dispatcher.core.policy import ClusterPolicy, ComputePrice, EgressPrice, FlavorPolicy
from dispatcher.core.prices import as_paid, compute_amount, gpu_price, route_price, transfer_amount, transfer_time_s
from dispatcher.core.resources import WHOLE_GPU
from dispatcher.sim.jobs import SimJob
from dispatcher.sim.results import JobOutcome, Run
from dispatcher.sim.world import Setup
from dispatcher.sim.world_caches import Caches

PREEMPTED = "Preempted"


@dataclass(slots=True)
class _Attempt:
    """A run that goes on. `fetch_s`: how long it first waits for its data, while it holds its GPUs."""

    cluster: ClusterName
    flavor: FlavorName
    began_at: datetime
    fetch_s: int
    speed_permille: int
    due_s: float


@dataclass(slots=True)
class _Page:
    """All that is known of one job. `done_s` is work at speed 1000 that lies in its last checkpoint."""

    job: SimJob
    done_s: float = 0.0
    running: _Attempt | None = None
    runs: list[Run] = field(default_factory=list)
    finish_s: int | None = None
    run_usd_micro: int = 0
    egress_usd_micro: int = 0
    egress_bytes: int = 0
    copies: int = 0
    preemptions: int = 0
    needless: int = 0


@dataclass(slots=True)
class Ledger:
    """`Witness` (by `told`) and `Pace` of one world. `events` counts all that happened."""

    setup: Setup
    world: World
    events: int = 0
    open: int = 0
    """Jobs that were submitted and have not ended."""
    running: int = 0
    """Jobs whose pods run now."""
    end_s: int = 0
    """When something happened last."""
    _pages: dict[str, _Page] = field(default_factory=dict)
    _preempting: dict[tuple[ClusterName, str], list[_Page]] = field(default_factory=dict)
    """Whoever was stopped for a copy (cluster, job) that does not run yet: for nothing, if it never does."""
    _evicting: tuple[ClusterName, str] | None = None
    _routes: dict[tuple[ClusterName, str, int], EgressPrice | None] = field(default_factory=dict)
    _caches: Caches = field(default_factory=Caches)

    @property
    def now(self) -> datetime:
        return self.world.now

    def submitted(self, job: SimJob) -> None:
        self.events += 1
        self.open += 1
        self._pages[self.setup.key(job)] = _Page(job)

    # --- witness -------------------------------------------------------------------------------------------------

    def told(self, what: Happening, where: ClusterName | None, workload: Workload) -> None:
        """As `connectors.embedded.witness.Witness`."""
        self.events += 1
        self.end_s = self._second(self.now)
        if workload.job is None:
            return
        key = f"{workload.job.namespace}/{workload.job.name}"
        page = self._pages.get(key)
        if page is None:
            return
        if where is None:
            if what is Happening.FINISHED:
                page.finish_s = self._second(self.now)
                self.open -= 1
            return
        match what:
            case Happening.CREATED:
                page.copies += 1
            case Happening.PREEMPTS:
                self._evicting = (where, key)
            case Happening.EVICTED if workload.evicted_reason == PREEMPTED:
                page.preemptions += 1
                if self._evicting is not None:
                    self._preempting.setdefault(self._evicting, []).append(page)
            case Happening.STARTED:
                self._preempting.pop((where, key), None)
            case Happening.DELETED:
                for victim in self._preempting.pop((where, key), ()):
                    victim.needless += 1

    # --- pace ----------------------------------------------------------------------------------------------------

    def begins(self, cluster: ClusterName, job: str, flavors: Mapping[str, FlavorName]) -> float:
        """As `connectors.embedded.witness.Pace`: its data comes first, then what is left of its work, with the time
        that its checkpoints stop it."""
        page, site = self._pages[job], self.setup.policy.clusters[cluster]
        flavor = site.flavors[flavors[WHOLE_GPU]]
        fetch_s = self._fetch(page, site)
        speed = (page.job.speed_on(flavor.product) if flavor.product else None) or flavor.speed_permille
        due_s = fetch_s + _with_checkpoints(page.job, page.job.duration_s - page.done_s) * 1000 / speed
        self.running += 1
        page.running = _Attempt(cluster, flavor.name, self.now, fetch_s, speed, due_s)
        return due_s

    def stops(self, cluster: ClusterName, job: str, ran_s: float) -> None:
        """As Pace: what it did since its last checkpoint is lost."""
        page = self._pages[job]
        attempt = page.running
        if attempt is None:
            return
        self._close(page, attempt)
        self._caches.stopped(cluster, job, self.now)
        plan = page.job.checkpoint
        if plan is not None:
            worked_s = max(0.0, ran_s - attempt.fetch_s) * attempt.speed_permille / 1000
            page.done_s += int(worked_s // (plan.interval_s + plan.cost_s)) * plan.interval_s

    def ends(self, cluster: ClusterName, job: str) -> None:
        """As Pace."""
        page = self._pages[job]
        self._caches.stopped(cluster, job, self.now)
        if page.running is not None:
            self._close(page, page.running)
            page.done_s = page.job.duration_s

    def _close(self, page: _Page, attempt: _Attempt) -> None:
        page.running = None
        self.running -= 1
        held_s = self._second(self.now) - self._second(attempt.began_at)
        page.runs.append(Run(attempt.cluster, attempt.flavor, self._second(attempt.began_at), self._second(self.now)))
        site = self.setup.policy.clusters[attempt.cluster]
        price = self._price(site, site.flavors[attempt.flavor])
        page.run_usd_micro += compute_amount(price, page.job.gpus * 1000, held_s, 1000)

    def _price(self, site: ClusterPolicy, flavor: FlavorPolicy) -> ComputePrice:
        """What an hour more really costs: under a contract what using it adds, after its end the whole price."""
        found = gpu_price(site, flavor, self.setup.policy.prices, self.now)
        if isinstance(found, ComputePrice):
            paid = as_paid(found, flavor, self.now)
            return paid if isinstance(paid, ComputePrice) else found
        raise Fatal(f"{site.name}: no price of {flavor.product} by {flavor.purchase}", fix="add it to prices.yaml")

    def _fetch(self, page: _Page, site: ClusterPolicy) -> int:
        """Move what the job reads to where it runs now, over the cheapest route of each: the bill, and the seconds.
        What fits into the cluster's cache comes in once, and while it lies there, not again."""
        seconds = 0
        for reading in page.job.data:
            size = self.setup.scenario.catalog[reading.data_set].size_bytes
            cached = 0 < size <= site.cache_bytes
            coming_s = self._caches.wait_s(site.name, reading.data_set, self.now) if cached else None
            if coming_s is not None:
                seconds = max(seconds, coming_s)
                continue
            reads = 1 if cached else reading.epochs
            route = self._route(site, reading.data_set, size * reads)
            if route is not None:
                page.egress_usd_micro += transfer_amount(route, size, reads)
                if route.from_region != route.to_region:
                    page.egress_bytes += size * reads
                seconds += transfer_time_s(route, size, reads) or 0
            if cached:
                there_at, job = self.now + timedelta(seconds=seconds), self.setup.key(page.job)
                self._caches.brings(site.name, reading.data_set, size, job, there_at, site.cache_bytes)
        return seconds

    def _route(self, site: ClusterPolicy, data_set: str, size_bytes: int) -> EgressPrice | None:
        """The cheapest way of so many bytes from a replica, the fastest of equals; None where it lies in the region of
        the cluster."""
        known = (site.name, data_set, size_bytes)
        if known not in self._routes:
            policy, found = self.setup.policy, []
            stores = [policy.stores[name] for name in policy.data_sets[DataSetName(data_set)].replica_stores]
            for store in stores:
                there = (store.provider, store.region)
                price = route_price(there, (site.provider, site.region), policy.prices, self.now)
                if price is None:
                    self._routes[known] = None
                    return None
                if isinstance(price, EgressPrice):
                    found.append(price)

            def cost(price: EgressPrice) -> tuple[int, int, str]:
                amount = transfer_amount(price, size_bytes, 1)
                return amount, transfer_time_s(price, size_bytes, 1) or 0, price.from_region

            self._routes[known] = min(found, key=cost, default=None)
        return self._routes[known]

    # --- the end -------------------------------------------------------------------------------------------------

    def _second(self, at: datetime) -> int:
        return int((at - self.setup.start).total_seconds())

    def outcomes(self) -> tuple[JobOutcome, ...]:
        """Of every job of the scenario, in its order; what still runs has run until now."""
        jobs = self.setup.scenario.jobs
        return tuple(self._outcome(self._pages.get(self.setup.key(job)) or _Page(job)) for job in jobs)

    def _outcome(self, page: _Page) -> JobOutcome:
        if page.running is not None:
            self._close(page, page.running)
        job = page.job
        return JobOutcome(
            job=job.name,
            workload_class=job.workload_class,
            queue=job.queue,
            team=job.team,
            gpus=job.gpus,
            submit_s=job.submit_s,
            runs=tuple(page.runs),
            finish_s=page.finish_s,
            costs=(("run", page.run_usd_micro), ("egress", page.egress_usd_micro)),
            egress_usd_micro=page.egress_usd_micro,
            egress_bytes=page.egress_bytes,
            copies=page.copies,
            preemptions=page.preemptions,
            needless_preemptions=page.needless,
        )


def _with_checkpoints(job: SimJob, work_s: float) -> float:
    """Work with the time that writing its checkpoints takes: none at the very end."""
    if job.checkpoint is None or work_s <= 0:
        return max(0.0, work_s)
    return work_s + ((work_s - 1) // job.checkpoint.interval_s) * job.checkpoint.cost_s
