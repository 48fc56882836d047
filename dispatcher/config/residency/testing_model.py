"""One `*.test.yaml` file beside the rules: made-up places, and questions with the answers that are expected."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from dispatcher.config.data_file import MadeBy
from dispatcher.config.fleet_file import Attested, Site
from dispatcher.config.residency.model import ObligationEntry
from dispatcher.config.values import (
    Boolean,
    Choice,
    Country,
    DnsName,
    Duration,
    Instant,
    Integer,
    Moment,
    Strict,
    Text,
    Word,
    fail,
)
from residency.facts import Gap, Kind
from residency.verdict import Code
from residency.vocabulary import Answer, Flow, Mode, Running

WITH_A_RULE = frozenset({Code.FORBIDDEN, Code.REQUIREMENT, Code.NO_PERMIT})
"""Codes behind which there is always a rule, so that a test must name it."""


class PlaceFixture(Site):
    """A place made up for these tests. Somebody vouches for it, unless not; what is not written is unknown."""

    kind: Annotated[Choice[Kind], Field(description="cluster, store, sink or people.")] = Kind.CLUSTER
    named: Annotated[Word | None, Field(description="Its name as rules see it; absent = the one here.")] = None
    at_site: Annotated[Text | None, Field(description="Places of one site have the same; else each is its own.")] = None
    like: Annotated[
        Word | None, Field(description="A place of this file, cluster or store: its facts, where none is written here.")
    ] = None
    without: Annotated[tuple[Word, ...], Field(description="Keys of `like` that are not known here.")] = ()
    vouched: Annotated[Boolean, Field(description="false: nobody attests it.")] = True


class TenantFixture(Strict):
    """An end user made up for these tests."""

    country: Annotated[Country | None, Field(description="Where it sits.")] = None
    parent_country: Annotated[Country | None, Field(description="Where its ultimate parent sits.")] = None
    login_countries: Annotated[tuple[Country, ...] | None, Field(description="From where its people log in.")] = None
    login_nationalities: Annotated[tuple[Country, ...] | None, Field(description="Their nationalities.")] = None
    attested: Annotated[Attested | None, Field(description="By whom, and until when; absent = by the test.")] = None
    vouched: Annotated[Boolean, Field(description="false: nobody attests it.")] = True


class WouldFixture(Strict):
    """What a rule that does not decide would do."""

    rule: Annotated[DnsName, Field(description="The rule.")]
    mode: Annotated[Choice[Mode], Field(description="warn or shadow.")]
    answer: Annotated[Choice[Answer], Field(description="deny or indeterminate.")] = Answer.DENY
    clause: Annotated[Text | None, Field(description="Its clause, as explanations quote it.")] = None


class Expected(Strict):
    """What must come out. What is not written is not compared, but for the mode of a rule that is named: enforce."""

    answer: Annotated[Choice[Answer], Field(description="allow, deny or indeterminate.")]
    code: Annotated[Choice[Code] | None, Field(description="Why not; needed where the answer is not allow.")] = None
    rule: Annotated[DnsName | None, Field(description="The rule that decides; of an allow, one that permits.")] = None
    clause: Annotated[
        Text | None, Field(description="The clause that decides, such as destination.country in @eea.")
    ] = None
    fact: Annotated[Text | None, Field(description="The fact that decides, or that is not known.")] = None
    gap: Annotated[Choice[Gap] | None, Field(description="Why it is not known: missing, unattested, expired.")] = None
    mode: Annotated[Choice[Mode], Field(description="Mode of the rule that is named.")] = Mode.ENFORCE
    flow: Annotated[Choice[Flow] | None, Field(description="Of several hops, the flow that is refused.")] = None
    label: Annotated[Word | None, Field(description="Of several labels, the one that refuses.")] = None
    obligations: Annotated[
        tuple[ObligationEntry, ...] | None, Field(description="Exactly what must be done; [] = nothing.")
    ] = None
    would: Annotated[
        tuple[WouldFixture, ...] | None, Field(description="Exactly what warn and shadow rules say; [] = nothing.")
    ] = None
    exceptions: Annotated[tuple[DnsName, ...] | None, Field(description="Exceptions that lift a rule here.")] = None
    valid_until: Annotated[Moment | None, Field(description="First instant at which it may change by itself.")] = None
    running: Annotated[Choice[Running] | None, Field(description="What becomes of work that runs.")] = None

    @model_validator(mode="after")
    def _says_why(self) -> Expected:
        if self.answer is Answer.ALLOW:
            if self.code not in (None, Code.PERMITTED) or self.clause is not None or self.gap is not None:
                raise fail("an allow has no code, clause or gap", "write answer: allow, and rule: for who permits")
            return self
        if self.code is None:
            raise fail("a refusal without its code would also pass for another reason", "add code:, such as no-permit")
        if self.code in WITH_A_RULE and self.rule is None:
            raise fail(f"code {self.code.value} without its rule", "add rule:")
        return self


class HopFixture(Strict):
    """One flow of a plan of several."""

    flow: Annotated[Choice[Flow], Field(description="The flow.")]
    to: Annotated[Word, Field(description="A place of this file, a cluster or a store.")]
    source: Annotated[Word | None, Field(alias="from", description="Where it comes from.")] = None


class TestEntry(Strict):
    """One question: data with some labels, on its way to a place. Of several flows each must have the answer."""

    __test__ = False

    description: Annotated[Text | None, Field(description="For people.")] = None
    now: Annotated[Instant | None, Field(description="Another instant than that of the file.")] = None
    labels: Annotated[tuple[Word, ...], Field(description="Labels of the data; none = unlabelled.")] = ()
    flows: Annotated[tuple[Choice[Flow], ...], Field(description="Each asked for itself.")] = ()
    to: Annotated[Word | None, Field(description="A place of this file, a cluster or a store.")] = None
    source: Annotated[Word | None, Field(alias="from", description="Where it comes from.")] = None
    hops: Annotated[
        tuple[HopFixture, ...], Field(description="Instead of flows and to: one plan, all of which must hold.")
    ] = ()
    home: Annotated[tuple[Country, ...], Field(description="Countries where the data lies.")] = ()
    persons: Annotated[Integer | None, Field(description="How many people are in it.")] = None
    data_set: Annotated[Word | None, Field(description="Its name, as exceptions may ask for it.")] = None
    made_by: Annotated[MadeBy | None, Field(description="It was made from the labelled data by this.")] = None
    queue: Annotated[DnsName | None, Field(description="The ClusterQueue.")] = None
    workload: Annotated[Text | None, Field(description="namespace/name.")] = None
    tenant: Annotated[
        Word | None, Field(description="A tenant of this file or of the rules; absent = the queue's.")
    ] = None
    gpus: Annotated[tuple[Word, ...] | None, Field(description="GPU products; absent = none, null = not known.")] = ()
    runs_for: Annotated[Duration | None, Field(description="How long the run is expected to last.")] = None
    expect: Annotated[Expected, Field(description="What must come out.")]

    @model_validator(mode="after")
    def _one_shape(self) -> TestEntry:
        if bool(self.hops) == bool(self.flows):
            raise fail("a test asks of flows, or of hops", "write flows: and to:, or hops:")
        if self.flows and self.to is None:
            raise fail("flows that go nowhere", "add to:")
        if self.hops and (self.to is not None or self.source is not None):
            raise fail("each hop has its own ends", "move to: and from: into the hops")
        return self


class RuleTestFile(Strict):
    """Tests of rules. `now` is given, never taken from a clock: a test says the same for ever."""

    now: Annotated[Instant, Field(description="The instant at which is asked.")]
    places: Annotated[dict[Word, PlaceFixture], Field(description="Places made up for these tests.")] = {}
    tenants: Annotated[dict[Word, TenantFixture], Field(description="End users made up for these tests.")] = {}
    tests: Annotated[dict[DnsName, TestEntry], Field(description="Questions by name: a sentence, with hyphens.")]
