"""The least that the jobs of a scenario can cost, as a transport problem: a bound that no contender can beat.

    minimise    sum over jobs j and pools p of   share[j,p] x cost[j,p]
    subject to  sum over p of share[j,p] = 1                                     every job runs, perhaps in parts
                sum over jobs that come at t or later of share[j,p] x hours[j,p]
                    <= GPUs of p x (end - t)                                     for every pool and some instants t

A pool is a flavor of a cluster. `hours` is for how long the job holds its GPUs there if nothing ever stops it: its data
comes in, then its work at its speed there, with its checkpoints. `cost` is that time at the pool's price, and the
egress of its data. Both are what the simulation itself would charge.

Why it is a lower bound. Whatever a contender did until `end`, let share[j,p] be the part of job j's work that ran on p.
Every part was paid at p's price, for that part of the hours at least: work that was lost and done again, data that was
fetched twice and GPUs that were held by pods waiting for each other only cost more. Egress was paid in full on every
pool that the job ran on. And what came at t or later ran between t and `end`, on no more GPUs than there are. So these
shares are allowed, and cost no more than was paid; the least over all allowed shares costs no more either. What is
left out makes it lower still: whole jobs, gangs that start together, nodes, queues, quota and law.

It is told what nobody can know beforehand: how fast each job is on each product. `by_class` is the bound of those who
know of that only what holds for the job's class, as every contender does: a job's own factor is drawn independently
of all that they see, so whatever they choose, they pay on average for the mean of 1 / speed on the pool they chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import highspy

from dispatcher.core.ids import RegionName
from dispatcher.core.policy import ClusterPolicy, ComputePrice, EgressPrice, FlavorPolicy
from dispatcher.core.prices import compute_amount, egress_price, gpu_price, transfer_amount, transfer_time_s
from dispatcher.core.resources import WHOLE_GPU
from dispatcher.core.workload import WorkloadClass
from dispatcher.sim.jobs import SimJob
from dispatcher.sim.world import Setup

WINDOWS = 24
"""So many instants t, evenly over the time in which jobs come."""
USD = 10**6
_Speeds = Mapping[tuple[WorkloadClass, str], int]


@dataclass(frozen=True, slots=True)
class Pool:
    """A flavor of a cluster with GPUs in it."""

    site: ClusterPolicy
    flavor: FlavorPolicy
    gpus: int
    price: ComputePrice


@dataclass(frozen=True, slots=True)
class Way:
    """One job on one pool: GPU-seconds held, and USD paid."""

    job: SimJob
    pool: int
    held_s: int
    usd: float


def bound_usd(setup: Setup, end_s: int, *, by_class: bool) -> float:
    """What the jobs of a scenario cost at least, all of them ended by `end_s`.

    Raises:
        ValueError: they cannot all run in that time, or a pool has no price.
    """
    pools = tuple(_pools(setup))
    ways = tuple(_ways(setup, pools, _class_speeds(setup) if by_class else {}))
    return _least(setup, pools, ways, end_s)


def _pools(setup: Setup) -> Iterator[Pool]:
    for _, site in sorted(setup.policy.clusters.items()):
        for _, flavor in sorted(site.flavors.items()):
            gpus = flavor.nodes.count * flavor.nodes.allocatable.get(WHOLE_GPU) if flavor.nodes is not None else 0
            if not gpus:
                continue
            price = gpu_price(site, flavor, setup.policy.prices, setup.start)
            if not isinstance(price, ComputePrice):
                raise ValueError(f"{site.name}: no price of {flavor.name}")
            yield Pool(site, flavor, gpus, price)


def _ways(setup: Setup, pools: tuple[Pool, ...], of_class: _Speeds) -> Iterator[Way]:
    for job in setup.scenario.jobs:
        for at, pool in enumerate(pools):
            product = str(pool.flavor.product)
            if job.products and product not in job.products:
                continue
            fetch_s, egress = _fetch(setup, job, pool)
            speed = of_class.get((job.workload_class, product)) or job.speed_on(product) or pool.flavor.speed_permille
            held_s = fetch_s + _with_checkpoints(job) * 1000 // speed
            paid = compute_amount(pool.price, job.gpus * 1000, held_s, 1000) + egress
            yield Way(job, at, job.gpus * held_s, paid / USD)


def _fetch(setup: Setup, job: SimJob, pool: Pool) -> tuple[int, int]:
    """For how long its data holds up the job, and micro-USD of its egress, each set by the cheapest route."""
    seconds = amount = 0
    for reading in job.data:
        known = setup.scenario.catalog[reading.data_set]
        there, book = pool.site.region, setup.policy.prices
        found = [egress_price(RegionName(region), there, book, setup.start) for region in known.regions]
        routes = [route for route in found if isinstance(route, EgressPrice)]
        if None in found or not routes:
            continue
        route = min(routes, key=lambda price: price.usd_micro_per_gb)
        seconds += transfer_time_s(route, known.size_bytes, reading.epochs) or 0
        amount += transfer_amount(route, known.size_bytes, reading.epochs)
    return seconds, amount


def _with_checkpoints(job: SimJob) -> int:
    """Its work at speed 1000 and the time that writing checkpoints takes."""
    if job.checkpoint is None:
        return job.duration_s
    return job.duration_s + (job.duration_s - 1) // job.checkpoint.interval_s * job.checkpoint.cost_s


def _class_speeds(setup: Setup) -> _Speeds:
    """How fast the work of a class is on a product as a whole: all of it by the time that all of it would take."""
    work: dict[tuple[WorkloadClass, str], int] = {}
    taken: dict[tuple[WorkloadClass, str], int] = {}
    for job in setup.scenario.jobs:
        for product, speed in job.speeds:
            key = (job.workload_class, product)
            work[key] = work.get(key, 0) + job.gpu_seconds
            taken[key] = taken.get(key, 0) + job.gpu_seconds * 1000 // speed
    return {key: max(1, amount * 1000 // max(1, taken[key])) for key, amount in work.items()}


def _least(setup: Setup, pools: tuple[Pool, ...], ways: tuple[Way, ...], end_s: int) -> float:
    jobs = {job.name: row for row, job in enumerate(setup.scenario.jobs)}
    last_s = max(job.submit_s for job in setup.scenario.jobs)
    instants = [last_s * step // WINDOWS for step in range(WINDOWS)]
    starts: list[int] = []
    rows: list[int] = []
    values: list[float] = []
    for way in ways:
        starts.append(len(rows))
        rows.append(jobs[way.job.name])
        values.append(1.0)
        for number, since in enumerate(instants):
            if way.job.submit_s >= since:
                rows.append(len(jobs) + way.pool * WINDOWS + number)
                values.append(way.held_s / 3600)
    room = [pool.gpus * (end_s - since) / 3600 for pool in pools for since in instants]
    model: Any = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(ways), len(jobs) + len(room)
    model.col_cost_ = [way.usd for way in ways]
    model.col_lower_, model.col_upper_ = [0.0] * len(ways), [1.0] * len(ways)
    model.row_lower_ = [1.0] * len(jobs) + [-highspy.kHighsInf] * len(room)
    model.row_upper_ = [1.0] * len(jobs) + room
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = [*starts, len(rows)], rows, values
    made: Any = highspy.Highs  # its own annotations lack this one
    solver = made()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise ValueError(f"{setup.scenario.name}: no transport, {solver.getModelStatus()}")
    return float(solver.getInfo().objective_function_value)
