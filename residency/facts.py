"""What is attested about places and people, and the one table of facts that a rule may ask for.

A fact that is missing, whose attestation has ended or is too old is unknown: never a default. Everything here is what
somebody vouches for; whether it is true in the world, no engine can know (residency.md section 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from residency.vocabulary import Flow


@dataclass(frozen=True, slots=True)
class Attestation:
    """Who vouches, since when, and until when (exclusive). With `at` and `max_age_s` it also ends by age."""

    by: str
    until: datetime | None = None
    at: datetime | None = None
    max_age_s: int | None = None

    def ends(self) -> datetime | None:
        """The first instant at which it counts no more; None when it has no end, or an age from an unknown start."""
        if self.at is None or self.max_age_s is None:
            return self.until
        return earliest(self.until, self.at + timedelta(seconds=self.max_age_s))


@dataclass(frozen=True, slots=True)
class Record:
    """A certificate, contract or licence that somebody holds, by name; it counts until `until` (exclusive)."""

    name: str
    until: datetime | None = None


class Kind(StrEnum):
    """What a place is. PEOPLE: where those sit who look at data. SINK: where logs end."""

    CLUSTER = "cluster"
    STORE = "store"
    SINK = "sink"
    PEOPLE = "people"


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a flow with everything that is attested of it (residency.md section 3.5). None = not known.

    `site` tells whether two places are the same site (provider and region). `fulfils` are the duties it implements.
    """

    name: str
    kind: Kind = Kind.CLUSTER
    site: str = ""
    country: str | None = None
    subdivision: str | None = None
    customs_territory: str | None = None
    location_precision: str | None = None
    operator_country: str | None = None
    parent_country: str | None = None
    control_plane: tuple[str, ...] | None = None
    support_countries: tuple[str, ...] | None = None
    support_nationalities: tuple[str, ...] | None = None
    us_persons_only: bool | None = None
    key_holder: str | None = None
    key_country: str | None = None
    log_sink: tuple[str, ...] | None = None
    object_store: tuple[str, ...] | None = None
    certifications: tuple[Record, ...] | None = None
    records: tuple[Record, ...] | None = None
    tenancy: str | None = None
    fulfils: tuple[str, ...] | None = None
    attested: Attestation | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """The end user: whose work it is, where it and its ultimate parent sit, who of it logs in and from where."""

    name: str
    queues: tuple[str, ...] = ()
    country: str | None = None
    parent_country: str | None = None
    login_countries: tuple[str, ...] | None = None
    login_nationalities: tuple[str, ...] | None = None
    attested: Attestation | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One flow of one artefact, from a place to a place, on behalf of somebody, at an instant: all that a rule may see.

    `home` are the countries where the artefact lies already; `products` the GPUs that would be used (empty: none, None:
    not known); `persons` how many people are in the data. The rest is what an exception's scope may name.
    """

    flow: Flow
    now: datetime
    destination: Place
    source: Place | None = None
    tenant: Tenant | None = None
    home: tuple[str, ...] = ()
    products: tuple[str, ...] | None = None
    persons: int | None = None
    queue: str = ""
    workload: str = ""
    data_sets: tuple[str, ...] = ()
    """Those that bring the label: an exception for data must name them all."""


class Gap(StrEnum):
    """Why a fact is not known."""

    MISSING = "missing"
    UNATTESTED = "unattested"
    EXPIRED = "expired"


class Shape(StrEnum):
    """What a fact's value is, which decides the operators that a clause on it may use."""

    COUNTRY = "country"
    COUNTRIES = "countries"
    WORD = "word"
    WORDS = "words"
    PRODUCTS = "products"
    BOOL = "bool"
    NUMBER = "number"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Seen:
    """A fact as a clause sees it: its value (always a tuple of texts; one entry for a single value), or why it is not
    known; and the next instant at which that may change."""

    values: tuple[str, ...] | None
    gap: Gap | None = None
    changes: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that rules may ask for, and how it is found."""

    name: str
    shape: Shape
    about: str
    read: Callable[[Question], Seen]

    @property
    def part(self) -> str:
        """The one field of a question, besides its instant, that the fact is found from."""
        return _PARTS.get(self.name) or _PARTS[self.name.partition(".")[0]]


# --- how facts are found -----------------------------------------------------------------------------------------


def vouched(values: tuple[str, ...] | None, attested: Attestation | None, now: datetime) -> Seen:
    """A value as far as somebody vouches for it now."""
    if values is None:
        return Seen(None, Gap.MISSING)
    if attested is None:
        return Seen(None, Gap.UNATTESTED)
    ends = attested.ends()
    if ends is not None and ends <= now:
        return Seen(None, Gap.EXPIRED)
    if attested.at is not None and attested.at > now:
        return Seen(None, Gap.UNATTESTED, attested.at)
    return Seen(values, None, ends)


def _texts(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, tuple):
        return tuple(sorted(set(value)))
    return (str(value),)


def _of_place(end: str, field: str) -> Callable[[Question], Seen]:
    def read(question: Question) -> Seen:
        place: Place | None = getattr(question, end)
        if place is None:
            return Seen(None, Gap.MISSING)
        return vouched(_texts(getattr(place, field)), place.attested, question.now)

    return read


def _records_of_place(end: str, field: str) -> Callable[[Question], Seen]:
    """Names of the records that count now; the first end among them changes the answer."""

    def read(question: Question) -> Seen:
        place: Place | None = getattr(question, end)
        held: tuple[Record, ...] | None = getattr(place, field) if place is not None else None
        if place is None or held is None:
            return Seen(None, Gap.MISSING)
        live = [record for record in held if record.until is None or record.until > question.now]
        seen = vouched(tuple(sorted({record.name for record in live})), place.attested, question.now)
        ends = [record.until for record in live if record.until is not None]
        return Seen(seen.values, seen.gap, earliest(seen.changes, *ends))

    return read


def _of_tenant(field: str) -> Callable[[Question], Seen]:
    def read(question: Question) -> Seen:
        if question.tenant is None:
            return Seen(None, Gap.MISSING)
        return vouched(_texts(getattr(question.tenant, field)), question.tenant.attested, question.now)

    return read


def _name_of(end: str, field: str) -> Callable[[Question], Seen]:
    """What needs nobody to vouch for it: how a place is called and what kind it is."""

    def read(question: Question) -> Seen:
        place: Place | None = getattr(question, end)
        return Seen(None, Gap.MISSING) if place is None else Seen((str(getattr(place, field)),))

    return read


def _given(values: Callable[[Question], tuple[str, ...] | None]) -> Callable[[Question], Seen]:
    def read(question: Question) -> Seen:
        found = values(question)
        return Seen(None, Gap.MISSING) if found is None else Seen(found)

    return read


def earliest(*instants: datetime | None) -> datetime | None:
    """The first of some instants; None stands for never."""
    return min((instant for instant in instants if instant is not None), default=None)


def _facts() -> tuple[Fact, ...]:
    found: list[Fact] = []
    for end, whom in (("destination", "where the flow goes"), ("source", "where it comes from")):
        found += [
            Fact(f"{end}.name", Shape.WORD, f"The name of {whom}.", _name_of(end, "name")),
            Fact(f"{end}.kind", Shape.WORD, f"cluster, store, sink or people: {whom}.", _name_of(end, "kind")),
        ]
        for name, shape, about, field in _PLACE_FACTS:
            full = f"{end}.{name}"
            found.append(Fact(full, shape, f"{about}, of {whom}.", _of_place(end, field)))
        for name, about in (("certifications", "Certificates that count now"), ("records", "Contracts and licences")):
            found.append(Fact(f"{end}.{name}", Shape.WORDS, f"{about}, of {whom}.", _records_of_place(end, name)))
    for name, shape, about, field in _SHORT_FACTS:
        found.append(Fact(name, shape, about, _of_place("destination", field)))
    for name, shape, about, field in _TENANT_FACTS:
        found.append(Fact(name, shape, about, _of_tenant(field)))
    found += [
        Fact("data.home", Shape.COUNTRIES, "Countries where the data lies.", _given(lambda q: q.home or None)),
        Fact(
            "data.persons",
            Shape.NUMBER,
            "How many people are in the data.",
            _given(lambda q: None if q.persons is None else (str(q.persons),)),
        ),
        Fact("gpu.products", Shape.PRODUCTS, "GPUs that would be used.", _given(lambda q: q.products)),
        Fact("time.now", Shape.TIME, "The instant of the question.", _given(lambda q: (q.now.isoformat(),))),
    ]
    return tuple(found)


_PLACE_FACTS: tuple[tuple[str, Shape, str, str], ...] = (
    ("country", Shape.COUNTRY, "The country", "country"),
    ("subdivision", Shape.WORD, "The part of the country", "subdivision"),
    ("customs_territory", Shape.WORD, "The customs territory", "customs_territory"),
    ("location_precision", Shape.WORD, "How exactly the location is known", "location_precision"),
    ("control_plane", Shape.COUNTRIES, "Countries of the control plane", "control_plane"),
    ("log_sink", Shape.COUNTRIES, "Countries where logs end", "log_sink"),
    ("object_store", Shape.COUNTRIES, "Countries of the object store", "object_store"),
    ("tenancy", Shape.WORD, "shared or dedicated", "tenancy"),
)
_SHORT_FACTS: tuple[tuple[str, Shape, str, str], ...] = (
    ("provider.operator_country", Shape.COUNTRY, "Where the operator of the destination sits.", "operator_country"),
    ("provider.parent_country", Shape.COUNTRY, "Where the operator's ultimate parent sits.", "parent_country"),
    ("support.countries", Shape.COUNTRIES, "From where operators can reach the machines.", "support_countries"),
    ("support.nationalities", Shape.COUNTRIES, "Nationalities of those operators.", "support_nationalities"),
    ("support.us_persons_only", Shape.BOOL, "Whether only US persons operate it.", "us_persons_only"),
    ("kms.holder", Shape.WORD, "Who holds the encryption keys.", "key_holder"),
    ("kms.country", Shape.COUNTRY, "Where the encryption keys are.", "key_country"),
)
_TENANT_FACTS: tuple[tuple[str, Shape, str, str], ...] = (
    ("tenant.country", Shape.COUNTRY, "Where the end user sits.", "country"),
    ("tenant.parent_country", Shape.COUNTRY, "Where the end user's ultimate parent sits.", "parent_country"),
    ("login.countries", Shape.COUNTRIES, "From where the end user's people log in.", "login_countries"),
    ("login.nationalities", Shape.COUNTRIES, "Nationalities of those people.", "login_nationalities"),
)

_PARTS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("destination", "provider", "support", "kms"), "destination"),
        "source": "source",
        **dict.fromkeys(("tenant", "login"), "tenant"),
        "data.home": "home",
        "data.persons": "persons",
        "gpu.products": "products",
        "time.now": "now",
    }
)

FACTS: Mapping[str, Fact] = MappingProxyType({fact.name: fact for fact in _facts()})
"""Every fact that a rule may ask for, by its name in rules."""
