"""What a cluster has against what the blueprint renders for it. Pure: two lists of manifests in, differences out.

Only what somebody decided counts. The apiserver's defaults, spellings of the same quantity (`1` and `1000m`), fields
that are empty, status and bookkeeping metadata are no differences. Defaults are those of Kueue's CRDs in v1beta2, equal
in 0.17.0 and 0.19.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dispatcher.config.render import MANAGED_BY, Manifest
from dispatcher.core.resources import QuantityError, amount

Scalar = str | int | None

OWNED_KINDS: tuple[str, ...] = (
    "ResourceFlavor",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "WorkloadPriorityClass",
    "AdmissionCheck",
    "MultiKueueConfig",
    "MultiKueueCluster",
)
"""Kinds of which an object with our label that the blueprint does not render is one too many. Namespaces are not among
them: they hold other people's things."""

_DEFAULTS: Mapping[str, tuple[tuple[tuple[str, ...], object], ...]] = {
    "ClusterQueue": (
        (("spec", "queueingStrategy"), "BestEffortFIFO"),
        (("spec", "stopPolicy"), "None"),
        (("spec", "flavorFungibility", "whenCanBorrow"), "MayStopSearch"),
        (("spec", "flavorFungibility", "whenCanPreempt"), "TryNextFlavor"),
        (("spec", "preemption", "withinClusterQueue"), "Never"),
        (("spec", "preemption", "reclaimWithinCohort"), "Never"),
        (("spec", "preemption", "borrowWithinCohort", "policy"), "Never"),
        (("spec", "fairSharing", "weight"), "1"),
    ),
    "LocalQueue": (
        (("spec", "stopPolicy"), "None"),
        (("spec", "fairSharing", "weight"), "1"),
    ),
    "Cohort": ((("spec", "fairSharing", "weight"), "1"),),
    "MultiKueueCluster": ((("spec", "clusterSource", "kubeConfig", "locationType"), "Secret"),),
}
"""Left out on both sides: a field that stands at its default says nothing."""
_QUANTITIES = frozenset({"nominalQuota", "borrowingLimit", "lendingLimit"})
_NAMES = ("name", "key")
"""Fields that name the entries of a list of objects; what has none is compared by its place."""
_LABEL = next(iter(MANAGED_BY))


class Standing(StrEnum):
    """MISSING: the cluster lacks it. EXTRA: it has our label, and the blueprint has no such object. CHANGED: a field
    differs."""

    MISSING = "missing"
    EXTRA = "extra"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field: what the cluster has, and what the blueprint says. None = not set; objects stand as compact JSON."""

    path: str
    live: Scalar
    blueprint: Scalar


@dataclass(frozen=True, slots=True)
class ObjectDifference:
    kind: str
    namespace: str
    name: str
    standing: Standing
    fields: tuple[FieldChange, ...] = ()


def diff(
    wanted: Sequence[Manifest], seen: Iterable[Mapping[str, Any]], unread: frozenset[str] = frozenset()
) -> tuple[ObjectDifference, ...]:
    """Differences of one cluster: first what the blueprint renders, in its order, then what is too many, by name.

    `unread` are kinds that could not be listed: nothing is said of them.
    """
    live = {_key(manifest): manifest for manifest in seen}
    found: list[ObjectDifference] = []
    for manifest in wanted:
        key = _key(manifest)
        if key[0] in unread:
            continue
        if key not in live:
            found.append(ObjectDifference(*key, Standing.MISSING))
            continue
        fields = _changes(manifest, live[key])
        if fields:
            found.append(ObjectDifference(*key, Standing.CHANGED, fields))
    known = {_key(manifest) for manifest in wanted}
    unknown = [(key, manifest) for key, manifest in live.items() if key not in known and key[0] in OWNED_KINDS]
    extra = sorted(key for key, manifest in unknown if _ours(manifest))
    return (*found, *(ObjectDifference(*key, Standing.EXTRA) for key in extra))


def _key(manifest: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = manifest.get("metadata") or {}
    return str(manifest.get("kind", "")), str(meta.get("namespace") or ""), str(meta.get("name", ""))


def _ours(manifest: Mapping[str, Any]) -> bool:
    labels = (manifest.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(_LABEL) == MANAGED_BY[_LABEL])


def _changes(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    if wanted["kind"] == "Namespace":
        return ()  # that it is there is all that we need of it
    found: list[FieldChange] = []
    if not _ours(live):
        labels = (live.get("metadata") or {}).get("labels") or {}
        found.append(FieldChange(f"metadata.labels[{_LABEL}]", labels.get(_LABEL), MANAGED_BY[_LABEL]))
    _compare("", _decided(wanted), _decided(live), found)
    return tuple(found)


def _decided(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What somebody decided in an object: everything but metadata, status and defaults, in one spelling."""
    kept = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    plain: dict[str, Any] = _normal(kept, "") or {}
    for path, value in _DEFAULTS.get(str(manifest.get("kind")), ()):
        _leave_out(plain, path, value)
    return _without_empty(plain) or {}


def _normal(value: Any, resource: str) -> Any:
    """The same value with each quantity as an exact integer of its resource's unit."""
    if isinstance(value, Mapping):
        name = str(value.get("name", ""))
        return {
            key: _quantity(name, entry) if key in _QUANTITIES else _normal(entry, name) for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [_normal(entry, resource) for entry in value]
    return value


def _quantity(resource: str, value: Any) -> Any:
    try:
        return amount(resource, str(value)) if value is not None else None
    except QuantityError:
        return value


def _leave_out(plain: dict[str, Any], path: tuple[str, ...], default: object) -> None:
    *parents, last = path
    inner: Any = plain
    for step in parents:
        inner = inner.get(step)
        if not isinstance(inner, dict):
            return
    if inner.get(last) is not None and str(inner[last]) == default:
        del inner[last]


def _without_empty(value: Any) -> Any:
    """Empty objects, lists and texts say nothing, but for a selector: an empty one selects everything."""
    if isinstance(value, dict):
        kept = {
            key: entry if key == "namespaceSelector" else _without_empty(entry)
            for key, entry in value.items()
            if entry is not None
        }
        return {key: entry for key, entry in kept.items() if entry is not None} or None
    if isinstance(value, list):
        return [_without_empty(entry) for entry in value] or None
    return None if value == "" else value


# --- comparing ---------------------------------------------------------------------------------------------------


def _compare(path: str, wanted: Any, live: Any, found: list[FieldChange]) -> None:
    if isinstance(wanted, dict) and isinstance(live, dict):
        for name in [*wanted, *sorted(name for name in live if name not in wanted)]:
            _compare(f"{path}.{name}" if path else name, wanted.get(name), live.get(name), found)
    elif isinstance(wanted, list) and isinstance(live, list):
        before, after = _named(live), _named(wanted)
        for name in [*after, *(name for name in before if name not in after)]:
            _compare(f"{path}[{name}]", after.get(name), before.get(name), found)
        if before.keys() == after.keys() and list(before) != list(after):
            found.append(FieldChange(f"{path}.order", " ".join(before), " ".join(after)))
    elif wanted != live:
        found.append(FieldChange(path, _shown(live), _shown(wanted)))


def _named(entries: list[Any]) -> dict[str, Any]:
    for field in _NAMES:
        named = {str(entry[field]): entry for entry in entries if isinstance(entry, dict) and field in entry}
        if entries and len(named) == len(entries):
            return named
    plain = {str(entry): entry for entry in entries if isinstance(entry, str)}
    if entries and len(plain) == len(entries):
        return plain
    return {str(index): entry for index, entry in enumerate(entries)}


def _shown(value: Any) -> Scalar:
    if value is None or isinstance(value, str | int):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
