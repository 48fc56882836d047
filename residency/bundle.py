"""The bundle: everything that the law is made of, read as a whole or not at all, and named by its content."""

from __future__ import annotations

from dataclasses import dataclass, replace

from residency.derivation import Declassification
from residency.exceptions import Waiver
from residency.facts import Tenant
from residency.rules import Rule
from residency.sets import Set
from residency.verdict import digest


@dataclass(frozen=True, slots=True)
class Settings:
    """`max_ttl_s`: no verdict lives longer (None: no such bound). `must_cover_expected_runtime`: a run that is expected
    to outlive its grant is denied rather than warned of. `max_age_s`: how old the bundle may get before classified work
    stops (checked by whoever loads bundles)."""

    max_ttl_s: int | None = None
    must_cover_expected_runtime: bool = False
    max_age_s: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """Sorted by id, so that neither files nor their order show. Make one with `bundle_of`, which digests it."""

    rules: tuple[Rule, ...] = ()
    sets: tuple[Set, ...] = ()
    exceptions: tuple[Waiver, ...] = ()
    declassifications: tuple[Declassification, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    settings: Settings = Settings()
    digest: str = ""

    def __repr__(self) -> str:
        """By its digest, which is its content: a law written out would hide everything else in a record."""
        return f"Bundle({self.digest or 'not digested'}, {len(self.rules)} rules)"


def bundle_of(bundle: Bundle) -> Bundle:
    """The bundle in its one order and with the digest of its content (places left out)."""
    ordered = replace(
        bundle,
        rules=tuple(sorted((_ordered(rule) for rule in bundle.rules), key=lambda rule: rule.id)),
        sets=tuple(sorted(bundle.sets, key=lambda one: one.id)),
        exceptions=tuple(sorted(bundle.exceptions, key=lambda one: one.id)),
        declassifications=tuple(sorted(bundle.declassifications, key=lambda one: one.id)),
        tenants=tuple(sorted(bundle.tenants, key=lambda one: one.name)),
        digest="",
    )
    return replace(ordered, digest=digest(ordered))


def _ordered(rule: Rule) -> Rule:
    """Labels and flows are sets: their order says nothing."""
    return replace(rule, labels=tuple(sorted(set(rule.labels))), flows=tuple(sorted(set(rule.flows))))


NO_LAW = bundle_of(Bundle())
"""No rules at all: nothing is permitted."""
