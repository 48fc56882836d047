"""data.yaml: what data there is, where it lies, and where it may be processed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from dispatcher.config.values import (
    Boolean,
    Country,
    CountryOrSet,
    DnsLabel,
    Size,
    Strict,
    Text,
    Word,
    fail,
)


class Label(Strict):
    """A classification of data, with the countries where such data may be processed. Going wide is written out."""

    countries: Annotated[
        tuple[CountryOrSet, ...] | None, Field(description="Country codes, or @name of one of `country_sets`.")
    ] = None
    anywhere: Annotated[Boolean, Field(description="true: no country is ruled out.")] = False
    description: Annotated[Text | None, Field(description="For people.")] = None

    @model_validator(mode="after")
    def _said(self) -> Label:
        if (self.countries is not None) == self.anywhere:
            raise fail("exactly one of 'countries' and 'anywhere: true' is needed", "such as countries: [DE]")
        if self.countries is not None and not self.countries:
            raise fail("an empty list of countries", "name at least one country")
        return self


class DataStore(Strict):
    """A place that holds data sets, checkpoints or outputs."""

    provider: Annotated[Word, Field(description="One of fleet.yaml's providers.")]
    region: Annotated[Word, Field(description="One of fleet.yaml's regions; its country is the store's.")]


class Replicas(Strict):
    """Where all of a data set lies."""

    stores: Annotated[tuple[Word, ...], Field(description="Names of `stores`.")] = ()
    clusters: Annotated[tuple[DnsLabel, ...], Field(description="Names of fleet.yaml's clusters.")] = ()


class DataSetEntry(Strict):
    """A data set as jobs name it."""

    labels: Annotated[tuple[Word, ...], Field(description="Names of `labels`; those of its sources are added.")] = ()
    size: Annotated[Size | None, Field(description="Such as 40TB or 38Ti; absent = not known.")] = None
    replicas: Annotated[Replicas, Field(description="Where all of it lies.")]
    derived_from: Annotated[tuple[Word, ...], Field(description="Data sets it was made from.")] = ()
    description: Annotated[Text | None, Field(description="For people.")] = None


class DataFile(Strict):
    """Labels with their countries, stores and data sets."""

    country_sets: Annotated[
        dict[DnsLabel, tuple[Country, ...]], Field(description="Named sets of countries, used as @name.")
    ] = {}
    labels: Annotated[
        dict[Word, Label],
        Field(description="Data labels. `unlabelled` is needed: it rules data that nobody has classified."),
    ]
    stores: Annotated[dict[Word, DataStore], Field(description="Stores by name.")]
    data_sets: Annotated[dict[Word, DataSetEntry], Field(description="Data sets by name.")]

    @model_validator(mode="after")
    def _default_is_said(self) -> DataFile:
        if "unlabelled" not in self.labels:
            raise fail(
                "no label 'unlabelled': data that nobody has classified would have no rule",
                "add unlabelled with the countries of your home, such as countries: [DE]",
            )
        return self
