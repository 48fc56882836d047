"""The figures of bench `policy`: a law of sixty rules over forty clusters, a preview over five thousand workloads, and
one set of verdicts. Times are of the process's own CPU, so that what else runs on the machine does not count."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.rows import Bar, Row
from dispatcher.core.ids import ClusterName, DataSetName, QueueName, StoreName, WorkloadUid
from dispatcher.core.impact import Comparison, impact
from dispatcher.core.legality import plan_of, ruling_on
from dispatcher.core.policy import Policy, QueuePolicy
from dispatcher.core.work import Stage, Work
from dispatcher.core.workload import DataUse, Destination, Request, WorkloadClass
from residency.bundle import Bundle, bundle_of
from residency.clauses import Clause, Group, Operator, Quantifier
from residency.judge import NO_FLIPS, law_of
from residency.plans import judge_plan
from residency.rules import Exceptable, Rule
from residency.sets import Member, Of, Set
from residency.vocabulary import Effect, Flow
from tests.core_builders import FLAVOR, NOW, compute, data, policy, request, site, store

RULES, CLUSTERS, WORKLOADS, SHAPES, LABELS, SETS = 60, 40, 5000, 400, 20, 300
SAMPLE = 20
COUNTRIES = ("DE", "FI", "FR", "NL", "NO", "PL", "SE", "US")
NAMES = tuple(f"c{at:02d}" for at in range(CLUSTERS))


def figures(say: Callable[[str], None]) -> Sequence[Row]:
    dice = random.Random(11)
    base = _policy(dice, _bundle())
    head = replace(base, digest="head", residency=_bundle(changed=6))
    work = _work(dice)
    taken_s = _cpu(lambda: impact(base, head, work, NOW))
    found = impact(base, head, work, NOW)
    say(f"policy diff: {taken_s:.2f} s, {len(found.changes)} of {len(work)} workloads change")
    naive_s = _cpu(lambda: [Comparison(base, head, NOW).change(one) for one in work[:SAMPLE]]) * len(work) / SAMPLE
    verdicts = _verdicts_ms(base, work, say)
    told = f"each workload judged for itself, from {SAMPLE} of them"
    name = f"policy diff, {RULES} rules x {CLUSTERS} clusters x {WORKLOADS} workloads of {SHAPES} shapes"
    return [Row(name, taken_s, "s CPU", told, naive_s, Bar("value", "at most", 5)), *verdicts]


def _verdicts_ms(base: Policy, work: Sequence[Work], say: Callable[[str], None]) -> list[Row]:
    """All verdicts with their reasons of one workload on every cluster: as in a decision, and by every rule anew."""
    asked = [one.request for one in work[:100]]
    for one in asked:
        _all(one, base)
    warm = sorted(_cpu(lambda one=one: _all(one, base)) for one in asked)  # type: ignore[misc]
    cold = sorted(_cpu(lambda one=one: _all(one, replace(base))) for one in asked[:10])  # type: ignore[misc]
    naive = sorted(_cpu(lambda one=one: _everything(one, base)) for one in asked[:10])  # type: ignore[misc]
    figure = {name: costs[len(costs) // 2] * 1000 for name, costs in (("warm", warm), ("cold", cold), ("all", naive))}
    say(
        f"verdict set: {figure['warm']:.2f} ms, first of a bundle {figure['cold']:.1f} ms, naive {figure['all']:.1f} ms"
    )
    peer = "every rule evaluated for every label, flow and cluster, nothing remembered"
    bar = Bar("value", "at most", 3)
    return [
        Row(f"one verdict set for {CLUSTERS} clusters, p50", figure["warm"], "ms CPU", peer, figure["all"], bar),
        Row("the first verdict set of a bundle, compiling it", figure["cold"], "ms CPU", peer, figure["all"]),
    ]


def _all(one: Request, book: Policy) -> int:
    return sum(ruling_on(one, cluster, book, NOW, (FLAVOR,)).allowed for cluster in book.clusters.values())


def _everything(one: Request, book: Policy) -> int:
    """Every rule heard on every flow of every label, whether it speaks of it or not; nothing is remembered."""
    law, legal = law_of(book.residency), 0
    for cluster in book.clusters.values():
        plan = plan_of(one, cluster, book, NOW, (FLAVOR,))
        for hop in plan.hops:
            question = plan.question(hop, NOW)
            for _ in hop.cargo.labels.names:
                for compiled in law.compiled:
                    compiled.ask(question, NO_FLIPS)
        legal += judge_plan(law, plan, NOW).allowed
    return legal


def _cpu(act: Callable[[], object]) -> float:
    started_s = time.process_time()
    act()
    return time.process_time() - started_s


# --- the world ------------------------------------------------------------------------------------------------------


def _bundle(changed: int = 0) -> Bundle:
    """Twenty labels, each with a permit, a requirement and a prohibition; some permits are narrower in the new one."""
    rules = [rule for at in range(LABELS) for rule in _rules(at, narrower=at < changed)]
    members = tuple(Member(name) for name in COUNTRIES[:-1])
    return bundle_of(Bundle(tuple(rules), (Set("eea", Of.COUNTRIES, members, "bench"),)))


def _rules(at: int, *, narrower: bool) -> list[Rule]:
    label, flows = f"label-{at:02d}", tuple(sorted(Flow))
    where = ("DE", "FI") if narrower else ("@eea",)
    asks: list[tuple[str, Effect, tuple[Clause, ...]]] = [
        (
            "permit",
            Effect.PERMIT,
            (
                Clause("destination.country", Operator.IN, where if at % 3 else ("@eea", "US")),
                Clause("destination.tenancy", Operator.NOT_IN, ("shared",)),
            ),
        ),
        ("require", Effect.REQUIRE, (Clause("destination.log_sink", Operator.SUBSET_OF, ("@eea", "US")),)),
        ("forbid", Effect.FORBID, (Clause("destination.country", Operator.IN, (COUNTRIES[at % 4],)),)),
    ]
    return [
        Rule(
            f"{name}-{at:02d}",
            (label,),
            flows,
            effect,
            (Group(Quantifier.ALL, clauses),),
            exceptable=Exceptable(("x",)),
        )
        for name, effect, clauses in asks
    ]


def _policy(dice: random.Random, bundle: Bundle) -> Policy:
    sites = [site(name, COUNTRIES[at % len(COUNTRIES)]) for at, name in enumerate(NAMES)]
    sites = [replace(one, site=replace(one.site, tenancy="dedicated")) for one in sites]
    stores = [replace(store(f"s{at}", COUNTRIES[at])) for at in range(8)]
    stores = [replace(one, site=replace(one.site, tenancy="dedicated")) for one in stores]
    sets = [
        data(f"d{at:03d}", labels=[f"label-{dice.randrange(LABELS):02d}"], stores=[f"s{dice.randrange(8)}"])
        for at in range(SETS)
    ]
    book = policy(sites, [compute(name, 3_000_000) for name in NAMES], data_sets=sets, stores=stores)
    queues = {QueueName(f"q{at}"): QueuePolicy(QueueName(f"q{at}"), WorkloadClass.TRAINING) for at in range(6)}
    return replace(book, residency=bundle, queues=queues)


def _work(dice: random.Random) -> tuple[Work, ...]:
    shapes = [_shape(dice, at) for at in range(SHAPES)]
    found = []
    for at in range(WORKLOADS):
        kind = dice.choice(shapes)
        one = replace(kind, uid=WorkloadUid(f"u{at}"), name=f"job-{at}")
        runs = at % 3 == 0
        places = ((ClusterName(dice.choice(NAMES)), (FLAVOR,)),) if runs else ()
        found.append(Work(one, Stage.RUNNING if runs else Stage.QUEUED, places))
    return tuple(found)


def _shape(dice: random.Random, at: int) -> Request:
    read = tuple(DataUse(DataSetName(f"d{dice.randrange(SETS):03d}")) for _ in range(dice.randint(1, 2)))
    to = Destination(StoreName(f"s{dice.randrange(8)}"), "x")
    listed = tuple(ClusterName(name) for name in NAMES)
    asked = request("job", data=read, checkpoint=to, outputs=to, listed_clusters=listed)
    return replace(asked, hub_queue=QueueName(f"q{at % 6}"))
