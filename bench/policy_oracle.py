"""The law once more, told plainly: what is forbidden, by reading rules as they are written. It shares no code with the
engine, knows no memo, no index and no order, and is what the engine is judged by.

A fact is None when nobody vouches for it now. `known(...)` of a clause gives True, False or None (not known).
"""

from __future__ import annotations

from dataclasses import dataclass

Fact = str | tuple[str, ...] | None
Carried = dict[str, frozenset[str]]
"""Labels, each with the data that brings it."""


@dataclass(frozen=True)
class Where:
    """A place of a fleet. `vouched`: somebody vouches for what is said of it now."""

    name: str
    kind: str
    vouched: bool
    country: str | None
    parent: str | None
    support: tuple[str, ...] | None
    keys: str | None
    sinks: tuple[str, ...] | None
    fulfils: tuple[str, ...] | None

    def says(self, value: Fact) -> Fact:
        return value if self.vouched else None


@dataclass(frozen=True)
class Said:
    """A rule: `clauses` of (fact, operator, operands), where "@name" is a set; `live`: in force now."""

    id: str
    effect: str
    labels: tuple[str, ...]
    flows: tuple[str, ...]
    clauses: tuple[tuple[str, str, tuple[str, ...]], ...]
    mode: str
    hard: bool
    live: bool
    encrypt: bool


@dataclass(frozen=True)
class Waived:
    """An exception that counts now: of these rules, for these data sets on these clusters."""

    id: str
    rules: tuple[str, ...]
    data: tuple[str, ...]
    clusters: tuple[str, ...]
    live: bool


@dataclass(frozen=True)
class Data:
    name: str
    labels: tuple[str, ...]
    lies: tuple[str, ...]
    derived_from: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    name: str
    reads: tuple[str, ...]
    checkpoint: str | None
    output: str | None


@dataclass(frozen=True)
class Told:
    """A bundle, as it is written. `sets` holds who belongs now."""

    rules: tuple[Said, ...]
    waived: tuple[Waived, ...]
    sets: dict[str, frozenset[str]]


@dataclass(frozen=True)
class World:
    """A fleet and a catalog."""

    places: dict[str, Where]
    data: dict[str, Data]


def forbidden(told: Told, world: World, job: Job, cluster: str) -> str:
    """Why a job must not be on a cluster; "" where nothing forbids it."""
    here = world.places[cluster]
    for name in job.reads:
        lies = world.data[name].lies
        ways = [cluster] if cluster in lies else sorted(lies)
        against = [_way(told, world, name, here, world.places[way]) for way in ways]
        if all(against):
            return against[0]
    carried = {
        label: frozenset(name for name in job.reads if label in labels(world, name))
        for read in job.reads
        for label in labels(world, read)
    }
    homes = [_home(world, name) for name in job.reads if "unlabelled" in labels(world, name)]
    home = set.intersection(*homes) if homes else set()
    for flow, store in (("checkpoint", job.checkpoint), ("output", job.output)):
        why = _flow(told, flow, carried, home, here, world.places[store], f"its {flow}") if store else ""
        if why:
            return why
    for country in (None,) if here.sinks is None else here.sinks:
        sink = Where(
            f"logs of {cluster}",
            "sink",
            here.vouched,
            country,
            here.parent,
            here.support,
            here.keys,
            here.sinks,
            here.fulfils,
        )
        why = _flow(told, "logs", carried, home, here, sink, "its logs")
        if why:
            return why
    return ""


def labels(world: World, name: str) -> frozenset[str]:
    """Its own, and those of everything that it was made from; `unlabelled` where there are none at all."""
    known = world.data[name]
    found = set(known.labels)
    for source in known.derived_from:
        found |= labels(world, source)
    return frozenset(found or {"unlabelled"})


def _home(world: World, name: str) -> set[str]:
    places = (world.places[place] for place in world.data[name].lies)
    return {place.country for place in places if place.country is not None}


def _way(told: Told, world: World, name: str, here: Where, source: Where) -> str:
    carried, home = dict.fromkeys(labels(world, name), frozenset({name})), _home(world, name)
    why = _flow(told, "process", carried, home, source, here, name)
    if not why and source.name != here.name:
        why = _flow(told, "cache", carried, home, source, here, name)
    return why


def _flow(  # noqa: PLR0913 - one question, told plainly
    told: Told, flow: str, carried: Carried, home: set[str], source: Where, to: Where, name: str
) -> str:
    for label in sorted(carried):
        why = _label(told, flow, label, home, source, to, carried[label])
        if why:
            return f"{flow} of {name} ({label}) to {to.name}: {why}"
    return ""


def _label(told: Told, flow: str, label: str, home: set[str], source: Where, to: Where, brought: frozenset[str]) -> str:  # noqa: PLR0913 - one question, told plainly
    granted = False
    speaking = [r for r in told.rules if r.live and flow in r.flows and (label in r.labels or "*" in r.labels)]
    for rule in speaking:
        lifted = not rule.hard and any(_covers(w, rule.id, brought, source, to) for w in told.waived)
        holds = _holds(told, rule, source, to)
        if rule.effect == "forbid" and rule.mode == "enforce" and not lifted and holds is not False:
            return f"{rule.id} forbids it" if holds else f"{rule.id} may forbid it"
        if rule.effect == "require" and rule.mode == "enforce" and not lifted and holds is not True:
            return f"{rule.id} requires otherwise"
        grants = rule.effect == "permit" and rule.mode != "shadow" and (holds is True or lifted)
        granted = granted or grants
        # A permit that may hold may ask for encryption: what is not known must never allow more than what is.
        may_grant = rule.effect == "permit" and rule.mode != "shadow" and (holds is not False or lifted)
        duty = may_grant or (rule.effect == "require" and rule.mode == "enforce")
        if duty and rule.encrypt and "encrypt_at_rest" not in (to.says(to.fulfils) or ()):
            return f"{rule.id} asks for encryption"
    if label == "unlabelled" and not any("unlabelled" in r.labels and r.effect == "permit" for r in told.rules):
        granted = flow not in ("replicate", "replicate_sealed") and to.says(to.country) in home
    return "" if granted else "nothing permits it"


def _covers(waived: Waived, rule: str, brought: frozenset[str], source: Where, to: Where) -> bool:
    """An exception for data goes with what is made of it, where it names all data that brings the label."""
    ends = {source.name, to.name}
    return waived.live and rule in waived.rules and brought <= set(waived.data) and bool(ends & set(waived.clusters))


def _holds(told: Told, rule: Said, source: Where, to: Where) -> bool | None:
    found = [_clause(told, clause, source, to) for clause in rule.clauses]
    if False in found:
        return False
    return None if None in found else True


def _clause(told: Told, clause: tuple[str, str, tuple[str, ...]], source: Where, to: Where) -> bool | None:
    fact, operator, operands = clause
    seen = {
        "destination.country": to.says(to.country),
        "source.country": source.says(source.country),
        "provider.parent_country": to.says(to.parent),
        "support.countries": to.says(to.support),
        "kms.country": to.says(to.keys),
    }[fact]
    if seen is None:
        return None
    members: set[str] = set()
    for operand in operands:
        members |= told.sets.get(operand[1:], frozenset()) if operand.startswith("@") else {operand}
    values = {seen} if isinstance(seen, str) else set(seen)
    if operator in ("in", "subset_of"):
        return values <= members
    if operator == "any_of":
        return bool(values & members)
    return not values & members  # not_in, none_of
