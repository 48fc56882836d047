"""Random rules, catalogs, fleets and jobs, drawn once and told twice: plainly for the oracle (policy_oracle.py), and in
the vocabulary of the daemon for the production path. Each draw comes from its number, so any can be drawn again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache

from bench.policy_oracle import Data, Job, Said, Told, Waived, Where, World
from dispatcher.core.ids import ClusterName, DataLabel, DataSetName, RegionName, StoreName
from dispatcher.core.policy import ClusterPolicy, DataSet, Policy, Store
from dispatcher.core.snapshot import Snapshot
from dispatcher.core.workload import DataUse, Declaration, Destination, Request
from residency.bundle import Bundle, bundle_of
from residency.clauses import Clause, Group, Operator, Quantifier
from residency.exceptions import Scope, Waiver
from residency.facts import Attestation, Kind, Place
from residency.obligations import Duty, Obligation
from residency.rules import Exceptable, Rule
from residency.sets import Member, Of, Set
from residency.vocabulary import Effect, Flow, Mode
from tests.core_builders import NOW, compute, policy, request, seen, site, worker

COUNTRIES = ("CN", "DE", "FR", "NO", "US")
LABELS = ("personal", "acme", "tech")
CLUSTERS, STORES = ("c0", "c1"), ("s0", "s1")
FLOWS = ("process", "cache", "checkpoint", "output", "logs")
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)
_FACTS = {
    "destination.country": ("in", "not_in"),
    "source.country": ("in", "not_in"),
    "provider.parent_country": ("in", "not_in"),
    "support.countries": ("subset_of", "any_of", "none_of"),
    "kms.country": ("in", "not_in"),
}
_PROVIDER, _REGION = "p-home", RegionName("r-home")
JOBS = 16
"""Jobs of a draw: each with each of the two bundles is a triple."""
TRIPLES = 2 * JOBS


@dataclass(frozen=True)
class Draw:
    """One fleet and catalog, two bundles (the second arrives while jobs wait), and jobs; in both tellings."""

    world: World
    told: tuple[Told, Told]
    policies: tuple[Policy, Policy]
    jobs: tuple[tuple[Job, Request], ...]


def draw(number: int) -> Draw:
    dice = random.Random(number)
    places = {name: _where(dice, name, "cluster") for name in CLUSTERS}
    places |= {name: _where(dice, name, "store") for name in STORES}
    world = World(places, _catalog(dice))
    told = (_told(dice, world), _told(dice, world))
    base = _base(world)
    jobs = tuple(_job(dice, world, at) for at in range(JOBS))
    bundles = (_bundle(told[0]), _bundle(told[1]))
    policies = (replace(base, residency=bundles[0]), replace(base, residency=bundles[1]))
    return Draw(world, told, policies, tuple((job, _request(job)) for job in jobs))


# --- told plainly --------------------------------------------------------------------------------------------------


def _some(dice: random.Random, of: Sequence[str], least: int = 1, most: int = 3) -> tuple[str, ...]:
    return tuple(sorted(dice.sample(of, dice.randint(least, min(most, len(of))))))


def _maybe(dice: random.Random, value: str, chance: float = 0.93) -> str | None:
    return value if dice.random() < chance else None


def _where(dice: random.Random, name: str, kind: str) -> Where:
    return Where(
        name=name,
        kind=kind,
        vouched=dice.random() < 0.97,
        country=_maybe(dice, dice.choice(COUNTRIES), 0.95),
        parent=_maybe(dice, dice.choice(COUNTRIES)),
        support=_some(dice, COUNTRIES, 1, 2) if dice.random() < 0.93 else None,
        keys=_maybe(dice, dice.choice(COUNTRIES)),
        sinks=_some(dice, COUNTRIES, 1, 1) if dice.random() < 0.95 else None,
        fulfils=("encrypt_at_rest",) if dice.random() < 0.8 else (),
    )


def _catalog(dice: random.Random) -> dict[str, Data]:
    found: dict[str, Data] = {}
    for at in range(6):
        labelled = _some(dice, LABELS, 1, 2 if dice.random() < 0.3 else 1) if dice.random() < 0.85 else ()
        lies = _some(dice, (*CLUSTERS, *STORES), 1, 2)
        sources = _some(dice, sorted(found), 1, 1) if found and dice.random() < 0.3 else ()
        found[f"d{at}"] = Data(f"d{at}", labelled, lies, sources)
    return found


def _told(dice: random.Random, world: World) -> Told:
    rules = [_permit(dice, label, at) for at, label in enumerate(LABELS)]
    rules += [_rule(dice, f"r{at}") for at in range(dice.randint(0, 3))]
    waived = [
        Waived(
            id=f"w{at}",
            rules=_some(dice, [rule.id for rule in rules], 1, 2),
            data=_some(dice, sorted(world.data), 1, 2),
            clusters=_some(dice, CLUSTERS, 1, 2),
            live=dice.random() < 0.7,
        )
        for at in range(dice.randint(0, 1))
    ]
    return Told(tuple(rules), tuple(waived), {"own": frozenset(_some(dice, COUNTRIES, 2, 4))})


def _permit(dice: random.Random, label: str, at: int) -> Said:
    """Most labels are permitted something: rules under which nothing may go would prove nothing."""
    clauses = (_clause(dice),) if dice.random() < 0.6 else ()
    mode = dice.choice(("enforce", "enforce", "enforce", "enforce", "warn", "shadow"))
    return Said(
        f"p{at}",
        "permit",
        (label,),
        FLOWS if dice.random() < 0.85 else _some(dice, FLOWS, 3, 4),
        clauses,
        mode,
        hard=dice.random() < 0.5,
        live=dice.random() < 0.95,
        encrypt=dice.random() < 0.1,
    )


def _rule(dice: random.Random, name: str) -> Said:
    effect = dice.choice(("permit", "forbid", "forbid", "require"))
    of = LABELS if effect == "permit" else (*LABELS, "*")
    return Said(
        name,
        effect,
        _some(dice, of, 1, 2),
        _some(dice, FLOWS, 1, 2),
        tuple(_clause(dice) for _ in range(dice.randint(1, 2))),
        dice.choice(("enforce", "enforce", "enforce", "warn", "shadow")),
        hard=dice.random() < 0.5,
        live=dice.random() < 0.9,
        encrypt=effect != "forbid" and dice.random() < 0.2,
    )


def _clause(dice: random.Random) -> tuple[str, str, tuple[str, ...]]:
    fact = dice.choice(sorted(_FACTS))
    operands = ("@own",) if dice.random() < 0.4 else _some(dice, COUNTRIES, 1, 3)
    return fact, dice.choice(_FACTS[fact]), operands


def _job(dice: random.Random, world: World, at: int) -> Job:
    def store() -> str | None:
        return dice.choice(STORES) if dice.random() < 0.4 else None

    return Job(f"j{at}", _some(dice, sorted(world.data), 1, 1 + (at % 3 == 0)), store(), store())


# --- told to the daemon --------------------------------------------------------------------------------------------


def _bundle(told: Told) -> Bundle:
    members = tuple(Member(name) for name in sorted(told.sets["own"]))
    gone = Member("CN", until=EARLIER)  # who belonged once belongs no more
    rules = tuple(_as_rule(said) for said in told.rules)
    return bundle_of(Bundle(rules, (Set("own", Of.COUNTRIES, (*members, gone), ""),), tuple(map(_waiver, told.waived))))


def _as_rule(said: Said) -> Rule:
    clauses = tuple(Clause(fact, Operator(operator), operands) for fact, operator, operands in said.clauses)
    return Rule(
        id=said.id,
        labels=said.labels,
        flows=tuple(Flow(flow) for flow in said.flows),
        effect=Effect(said.effect),
        when=(Group(Quantifier.ALL, clauses),) if clauses else (),
        obligations=(Obligation(Duty.ENCRYPT_AT_REST),) if said.encrypt else (),
        mode=Mode(said.mode),
        exceptable=None if said.hard else Exceptable(("dpo",)),
        until=None if said.live else EARLIER,
    )


def _waiver(waived: Waived) -> Waiver:
    scope = Scope(data_sets=waived.data, clusters=waived.clusters)
    expires = LATER if waived.live else NOW  # at the very instant of its end it counts no more
    return Waiver(waived.id, waived.rules, scope, "", "", "a", "b", "dpo", NOW - timedelta(days=1), expires)


def _as_place(where: Where, kind: Kind) -> Place:
    return Place(
        name=where.name,
        kind=kind,
        site=f"p/{where.name}",
        country=where.country,
        parent_country=where.parent,
        support_countries=where.support,
        key_country=where.keys,
        log_sink=where.sinks,
        fulfils=where.fulfils,
        attested=Attestation("p", LATER if where.vouched else NOW),
    )


def _base(world: World) -> Policy:
    clusters = {
        ClusterName(name): replace(_planned(name), site=_as_place(world.places[name], Kind.CLUSTER))
        for name in CLUSTERS
    }
    stores = {
        StoreName(name): Store(StoreName(name), _PROVIDER, _REGION, _as_place(world.places[name], Kind.STORE))
        for name in STORES
    }
    data = {DataSetName(one.name): _as_data(one) for one in world.data.values()}
    return replace(_plain(), clusters=clusters, stores=stores, data_sets=data)


def _as_data(one: Data) -> DataSet:
    return DataSet(
        DataSetName(one.name),
        tuple(DataLabel(label) for label in one.labels),
        10**9,
        tuple(ClusterName(name) for name in one.lies if name in CLUSTERS),
        tuple(StoreName(name) for name in one.lies if name in STORES),
        tuple(DataSetName(name) for name in one.derived_from),
    )


@cache
def _planned(name: str) -> ClusterPolicy:
    """One region for all: no route needs a price, so that the law alone decides where data goes."""
    return replace(site(name), provider=_PROVIDER, region=_REGION)


@cache
def _plain() -> Policy:
    return policy([_planned(name) for name in CLUSTERS], [compute("home", 3_000_000)])


@cache
def snapshot() -> Snapshot:
    """Every cluster has room."""
    return Snapshot(tuple(seen(worker(name)) for name in CLUSTERS))


@cache
def _asked() -> Request:
    return request("job", listed_clusters=tuple(ClusterName(name) for name in CLUSTERS))


def _request(job: Job) -> Request:
    asked = _asked()

    def to(store: str | None) -> Destination | None:
        return Destination(StoreName(store), "x") if store is not None else None

    says: Declaration = replace(
        asked.declared,
        data=tuple(DataUse(DataSetName(name)) for name in job.reads),
        checkpoint=to(job.checkpoint),
        outputs=to(job.output),
    )
    return replace(asked, declared=says)
