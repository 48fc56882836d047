"""Reads what a workload says of itself (design section 6): the keys under `entrepot.dev/`.

Strict: a key that is not known, or a value that does not read, is a problem that holds the workload. A silent default
would decide something that its owner meant otherwise (field reports, theme J).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from dispatcher.core.ids import ClusterName, DataSetName, RegionName, StoreName
from dispatcher.core.literals import (
    LiteralError,
    parse_count,
    parse_duration,
    parse_instant,
    parse_milliseconds,
    parse_size,
    parse_usd,
)
from dispatcher.core.nearness import nearest
from dispatcher.core.policy import CatalogStanding, Policy
from dispatcher.core.workload import DataUse, Declaration, Destination, WorkloadClass

PREFIX = "entrepot.dev/"


MOST_CHARACTERS = 4096
"""Of a value: anybody who may make a job may write a quarter of a megabyte into one, which is read in every cycle and
shown in every answer."""


@dataclass(frozen=True, slots=True)
class InputProblem:
    """A workload that cannot be decided because of what it (or its owner) says: which key, which value, what to do."""

    key: str
    value: str
    rule: str
    fix: str


class _Bad(Exception):
    """A value that does not read: `rule` says what is allowed, `fix` what to write instead."""

    def __init__(self, rule: str, fix: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.fix = fix


Reader = Callable[[Declaration, str, Policy], Declaration]
"""Puts one value into a declaration. Raises LiteralError or _Bad."""


def parse_declaration(
    keys: tuple[tuple[str, str], ...], policy: Policy
) -> tuple[Declaration, tuple[InputProblem, ...]]:
    """What the keys say, and everything about them that is wrong (all of it, in key order, not only the first).

    A declaration that comes with problems must not be decided on. Keys outside `entrepot.dev/` are skipped.
    """
    declared = Declaration()
    problems: list[InputProblem] = []
    for key, value in sorted(keys):
        if not key.startswith(PREFIX):
            continue
        reader = KEYS.get(key.removeprefix(PREFIX))
        if reader is None:
            problems.append(_unknown_key(key, value))
            continue
        if len(value) > MOST_CHARACTERS:
            problems.append(_too_long(key, value))
            continue
        try:
            declared = reader(declared, value.strip(), policy)
        except LiteralError as error:
            problems.append(InputProblem(key, value, str(error), f"correct or remove {key} on the job"))
        except _Bad as error:
            problems.append(InputProblem(key, value, error.rule, error.fix))
    if declared.group_size is not None and declared.group is None:
        problems.append(
            InputProblem(f"{PREFIX}group-size", str(declared.group_size), "a size needs a group", f"add {PREFIX}group")
        )
    return declared, tuple(problems)


def suggestion(word: str, known: tuple[str, ...]) -> str:
    """ "did you mean ..." with the nearest known word, or the known words when none is near and they are few."""
    near = nearest(word, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    if known and len(known) <= 12:
        return f"known: {', '.join(known)}"
    return "nothing similar is known"


def _unknown_key(key: str, value: str) -> InputProblem:
    near = nearest(key.removeprefix(PREFIX), KEYS, 1)  # without the prefix: it is most of the letters of every key
    fix = f"did you mean '{PREFIX}{near[0]}'?" if near else f"known after {PREFIX}: {', '.join(KEYS)}"
    return InputProblem(key, value, "this key is not known", fix)


def _too_long(key: str, value: str) -> InputProblem:
    rule = f"{len(value)} characters, where at most {MOST_CHARACTERS} are read"
    return InputProblem(key, f"{value[:40]}...", rule, f"shorten or remove {key} on the job")


def _team(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, team=_name(value, "a team"))


def _project(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, project=_name(value, "a project"))


def _class(declared: Declaration, value: str, policy: Policy) -> Declaration:
    known = tuple(c.value for c in WorkloadClass)
    if value not in known:
        raise _Bad(f"{value!r} is not a workload class", suggestion(value, known))
    return replace(declared, workload_class=WorkloadClass(value))


def _datasets(declared: Declaration, value: str, policy: Policy) -> Declaration:
    uses: list[DataUse] = []
    known = tuple(str(name) for name in policy.data_sets)
    for entry in _entries(value, "radar-2026, lidar-raw:2"):
        name, colon, reads = entry.partition(":")
        name = name.strip()
        if DataSetName(name) not in policy.data_sets:
            raise _unknown_data_set(name, policy, known)
        if any(use.data_set == name for use in uses):
            raise _Bad(f"data set {name!r} is named twice", f"write it once with its reads, such as {name}:2")
        uses.append(DataUse(DataSetName(name), parse_count(reads) if colon else 1))
    return replace(declared, data=tuple(uses))


def _unknown_data_set(name: str, policy: Policy, known: tuple[str, ...]) -> _Bad:
    if policy.catalog is not None and policy.catalog.standing is CatalogStanding.UNREAD:
        return _Bad(f"data set {name!r} is not known: the catalog could not be read yet", "see entrepot data")
    return _Bad(f"data set {name!r} is not in the catalog (data.yaml)", suggestion(name, known))


def _outputs(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, outputs=_destination(value, policy))


def _checkpoint(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, checkpoint=_destination(value, policy))


def _outputs_size(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, outputs_bytes=parse_size(value))


def _checkpoint_size(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, checkpoint_bytes=parse_size(value))


def _checkpoint_interval(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, checkpoint_interval_s=parse_duration(value))


def _expected_duration(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, expected_duration_s=parse_duration(value))


def _deadline(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, deadline=parse_instant(value))


def _clusters(declared: Declaration, value: str, policy: Policy) -> Declaration:
    names = tuple(sorted({ClusterName(entry) for entry in _entries(value, "onprem-eu, cloud-a-fi")}))
    return replace(declared, clusters=names)


def _group(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, group=_name(value, "a group"))


def _group_size(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, group_size=parse_count(value))


def _max_cost(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, max_cost_usd_micro=parse_usd(value))


def _users(declared: Declaration, value: str, policy: Policy) -> Declaration:
    names = tuple(sorted({RegionName(entry) for entry in _entries(value, "de-stuttgart, fr-paris")}))
    known = tuple(str(name) for name in policy.regions)
    for name in names:
        if name not in known:
            raise _Bad(f"region {name!r} is not in the fleet (fleet.yaml)", suggestion(name, known))
    return replace(declared, users=names)


def _max_round_trip(declared: Declaration, value: str, policy: Policy) -> Declaration:
    return replace(declared, max_round_trip_ms=parse_milliseconds(value))


def _nothing(declared: Declaration, value: str, policy: Policy) -> Declaration:
    """A key for tests and demos: the embedded and KWOK fleets read it, decisions must not know the true run time."""
    return declared


def _observed(declared: Declaration, value: str, policy: Policy) -> Declaration:
    """What others see of its use, not what its owner says: core/idle.py reads it, and a slip there holds nothing."""
    return declared


KEYS: Mapping[str, Reader] = MappingProxyType(
    {
        "activity-checked": _observed,
        "checkpoint": _checkpoint,
        "checkpoint-interval": _checkpoint_interval,
        "checkpoint-size": _checkpoint_size,
        "clusters": _clusters,
        "datasets": _datasets,
        "deadline": _deadline,
        "expected-duration": _expected_duration,
        "group": _group,
        "group-size": _group_size,
        "last-activity": _observed,
        "max-cost": _max_cost,
        "max-round-trip": _max_round_trip,
        "outputs": _outputs,
        "outputs-size": _outputs_size,
        "project": _project,
        "simulated-duration": _nothing,
        "team": _team,
        "users": _users,
        "workload-class": _class,
    }
)


def _name(value: str, what: str) -> str:
    if not value or len(value) > 253:
        raise _Bad(f"{what} must have a name of 1 to 253 characters", "write a name or remove the key")
    return value


def _entries(value: str, example: str) -> tuple[str, ...]:
    entries = tuple(entry.strip() for entry in value.split(","))
    if not all(entries):
        raise _Bad("a list of names separated by commas is expected, without empty places", f"write such as {example}")
    return entries


def _destination(value: str, policy: Policy) -> Destination:
    store, _, prefix = value.partition("/")
    if StoreName(store) not in policy.stores:
        known = tuple(str(name) for name in policy.stores)
        raise _Bad(
            f"store {store!r} is not in the catalog (data.yaml); STORE/PREFIX is expected", suggestion(store, known)
        )
    return Destination(StoreName(store), prefix.strip("/"))
