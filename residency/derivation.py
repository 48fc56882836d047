"""Derivation: what is made from data carries its labels, on and on, until a named transformation takes them off.

A declassification binds a transformation to an image digest, an approver, evidence and an end. Base images and public
base weights add nothing (residency.md section 4.7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from residency.facts import earliest
from residency.vocabulary import NOWHERE, UNLABELLED, At


class ArtefactKind(StrEnum):
    DATA = "data"
    CHECKPOINT = "checkpoint"
    WEIGHTS = "weights"
    OUTPUT = "output"
    LOGS = "logs"
    BASE = "base"
    """A base image or public base weights: used by many, made from nothing of ours."""


@dataclass(frozen=True, slots=True)
class Made:
    """By which transformation an artefact was made, and by which image, by content digest (sha256:...)."""

    transformation: str
    image: str


@dataclass(frozen=True, slots=True)
class Artefact:
    """A data set, or anything made from one. `labels` are its own; those of `derived_from` are added."""

    name: str
    kind: ArtefactKind = ArtefactKind.DATA
    labels: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    made: Made | None = None
    home: tuple[str, ...] = ()
    persons: int | None = None


@dataclass(frozen=True, slots=True)
class Declassification:
    """What `transformation`, run by the image of exactly this digest, takes off and what it puts there instead.

    Counts in half-open [since, expires), UTC: afterwards the labels are back.
    """

    id: str
    transformation: str
    image: str
    removes: tuple[str, ...]
    becomes: tuple[str, ...]
    evidence: str
    requested_by: str
    approved_by: str
    since: datetime
    expires: datetime
    at: At = field(default=NOWHERE, compare=False)

    def counts(self, made: Made | None, now: datetime) -> bool:
        return (
            made is not None
            and made.transformation == self.transformation
            and made.image == self.image
            and self.since <= now < self.expires
        )


@dataclass(frozen=True, slots=True)
class Inherited:
    """A label with the way by which it came: from the artefact itself back to the one that carries it.

    `brought_by` are the data sets that bring it into what a run makes; empty: the artefact itself.
    """

    label: str
    chain: tuple[str, ...]
    brought_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Labels:
    """All labels of an artefact, in order of label, and the next instant at which a declassification changes them."""

    inherited: tuple[Inherited, ...]
    changes: datetime | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.label for one in self.inherited)


Catalog = Mapping[str, Artefact]
Chains = dict[str, tuple[str, ...]]


def labels_of(name: str, catalog: Catalog, declared: tuple[Declassification, ...], now: datetime) -> Labels:
    """The union over everything that an artefact was made from. One without any label is `unlabelled`, and so is one
    that is not in the catalog. The least fixed point: rings of derivations end, and hide nothing.
    """
    lineage = _lineage(name, catalog)
    chains: dict[str, Chains] = {one: _own(one, catalog) for one in lineage}
    grown = True
    while grown:
        grown = False
        for one in lineage:
            for label, chain in _handed_down(one, chains, catalog, declared, now):
                if label not in chains[one]:
                    chains[one][label] = chain
                    grown = True
    found = chains[name] or {UNLABELLED: (name,)}
    relevant = [d for d in declared if any(_made_so(d, catalog.get(one)) for one in lineage)]
    ends = [end for d in relevant for end in (d.since, d.expires) if end > now]
    return Labels(tuple(Inherited(label, found[label]) for label in sorted(found)), earliest(*ends))


def _lineage(name: str, catalog: Catalog) -> tuple[str, ...]:
    """The artefact and everything that it was made from, nearest first, each once; what is base is left out."""
    found, waiting = {name: None}, deque((name,))
    while waiting:
        for source in _sources(waiting.popleft(), catalog):
            if source not in found:
                found[source] = None
                waiting.append(source)
    return tuple(found)


def _sources(name: str, catalog: Catalog) -> tuple[str, ...]:
    known = catalog.get(name)
    if known is None:
        return ()
    return tuple(s for s in sorted(known.derived_from) if s not in catalog or catalog[s].kind is not ArtefactKind.BASE)


def _own(name: str, catalog: Catalog) -> Chains:
    known = catalog.get(name)
    if known is not None and (known.labels or _sources(name, catalog)):
        return dict.fromkeys(sorted(known.labels), (name,))
    return {UNLABELLED: (name,)}


def _handed_down(
    name: str, chains: Mapping[str, Chains], catalog: Catalog, declared: tuple[Declassification, ...], now: datetime
) -> list[tuple[str, tuple[str, ...]]]:
    """What an artefact gets from its sources, after what its own making takes off and puts on."""
    found: Chains = {}
    for source in _sources(name, catalog):
        for label, chain in chains[source].items():
            found.setdefault(label, (name, *chain))
    made = catalog[name].made if name in catalog else None
    for one in declared:
        if one.counts(made, now) and not found.keys().isdisjoint(one.removes):
            found = {label: chain for label, chain in found.items() if label not in one.removes}
            found |= {label: (name, one.id) for label in one.becomes if label not in found}
    return sorted(found.items())


def _made_so(one: Declassification, artefact: Artefact | None) -> bool:
    made = artefact.made if artefact is not None else None
    return made is not None and (made.transformation, made.image) == (one.transformation, one.image)
