"""data.yaml: what data there is, how it is labelled, and where it lies."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from dispatcher.config.catalog_ref import CatalogRef
from dispatcher.config.fleet_file import Site
from dispatcher.config.store_ref import ObjectsRef
from dispatcher.config.values import (
    Choice,
    ClaimName,
    DnsLabel,
    Duration,
    Instant,
    Integer,
    Positive,
    Size,
    Strict,
    Text,
    Word,
    fail,
)


class Label(Strict):
    """A classification of data. What such data may do is written in residency/."""

    description: Annotated[Text | None, Field(description="For people.")] = None


class DataStore(Strict):
    """A place that holds data sets, checkpoints or outputs."""

    provider: Annotated[Word, Field(description="One of fleet.yaml's providers.")]
    region: Annotated[Word, Field(description="One of fleet.yaml's regions; its country is the store's.")]
    site: Annotated[Site, Field(description="What is attested about it, as of a cluster.")] = Site()
    objects: Annotated[
        ObjectsRef | None, Field(description="Where its objects lie, to look for replicas there.", exclude=True)
    ] = None
    """Changes no decision by itself, and so no digest."""


class Replicas(Strict):
    """Where all of a data set lies."""

    stores: Annotated[tuple[Word, ...], Field(description="Names of `stores`.")] = ()
    clusters: Annotated[tuple[DnsLabel, ...], Field(description="Names of fleet.yaml's clusters.")] = ()


class DataKind(StrEnum):
    """DATA: carries its labels on. BASE: base images and public base weights, which add nothing to what is made."""

    DATA = "data"
    BASE = "base"


class MadeBy(Strict):
    """The transformation that made a data set; one of residency/'s declassifications may speak of it."""

    transformation: Annotated[Word, Field(description="Its name.")]
    image: Annotated[
        str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="Content digest of the image that ran, sha256:...")
    ]


class DataSetEntry(Strict):
    """A data set as jobs name it."""

    kind: Annotated[Choice[DataKind], Field(description="data, or base: adds no labels to what is made.")] = (
        DataKind.DATA
    )

    labels: Annotated[tuple[Word, ...], Field(description="Names of `labels`; those of its sources are added.")] = ()
    size: Annotated[Size | None, Field(description="Such as 40TB or 38Ti; absent = not known.")] = None
    object_size: Annotated[
        Size | None, Field(description="Of one object in a store, for what requests cost; absent = the store's usual.")
    ] = None
    replicas: Annotated[Replicas, Field(description="Where all of it lies.")]
    derived_from: Annotated[tuple[Word, ...], Field(description="Data sets it was made from.")] = ()
    made_by: Annotated[MadeBy | None, Field(description="What made it, where its labels were taken off.")] = None
    persons: Annotated[Integer | None, Field(description="How many people are in it; absent = not known.")] = None
    description: Annotated[Text | None, Field(description="For people.")] = None


_FAR_AHEAD = 3000


class BandwidthRow(Strict):
    """What a route between two regions was seen to carry. It stands before the one that prices.yaml declares."""

    from_region: Annotated[Word, Field(description="One of fleet.yaml's regions.")]
    to_region: Annotated[Word, Field(description="Another of them.")]
    measured: Annotated[Positive, Field(description="Mbit/s.")]
    at: Annotated[Instant, Field(description="When; older than `bandwidth_max_age` it does not count.")]

    @model_validator(mode="after")
    def _leads_somewhere(self) -> BandwidthRow:
        if self.from_region == self.to_region:
            raise fail("a route from a region to itself", "name two regions")
        if self.at.year >= _FAR_AHEAD:
            raise fail("an instant that is far ahead", "write the one at which it was measured")
        return self


class ClaimEntry(Strict):
    """What the volumes of one persistent volume claim hold, each cluster having its own behind the name."""

    data_sets: Annotated[
        dict[DnsLabel, Word] | None, Field(description="The data set that it holds, by cluster.", min_length=1)
    ] = None
    clusters: Annotated[
        tuple[DnsLabel, ...] | None,
        Field(description="Where it may be mounted, for what is no data set: scratch, homes, caches.", min_length=1),
    ] = None

    @model_validator(mode="after")
    def _one_of_them(self) -> ClaimEntry:
        if (self.data_sets is None) == (self.clusters is None):
            raise fail("exactly one of 'data_sets' and 'clusters' is needed", "say what it holds, or where it may be")
        return self


class Unbound(StrEnum):
    """What becomes of a job that mounts a claim of which `claims` says nothing."""

    HOLD = "hold"
    ALLOW = "allow"


class DataFile(Strict):
    """Labels, stores and data sets."""

    labels: Annotated[
        dict[Word, Label],
        Field(description="Data labels. `unlabelled` is always one: that of data which nobody classified."),
    ]
    stores: Annotated[dict[Word, DataStore], Field(description="Stores by name.")]
    data_sets: Annotated[dict[Word, DataSetEntry], Field(description="Data sets by name.")]
    bandwidth: Annotated[
        tuple[BandwidthRow, ...],
        Field(description="Measured between regions; of several rows for a route the newest counts."),
    ] = ()
    bandwidth_max_age: Annotated[Duration, Field(description="What was measured before that does not count.")] = 86_400
    claims: Annotated[
        dict[ClaimName, ClaimEntry], Field(description="What persistent volume claims hold, by NAMESPACE/NAME.")
    ] = {}
    unbound_claims: Annotated[
        Choice[Unbound], Field(description="A job with a claim that is not in `claims`: hold it, or allow it anywhere.")
    ] = Unbound.HOLD
    catalog: Annotated[
        CatalogRef | None, Field(description="An endpoint that answers further data sets and bandwidths.", exclude=True)
    ] = None
    """Where content comes from is not content: it is left out of digests, and `core.policy.Catalog` stands there."""
