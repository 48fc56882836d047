"""One file of `residency/`: rules, sets, exceptions, declassifications, tenants, settings; any of them in any file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from dispatcher.config.fleet_file import Attested
from dispatcher.config.residency.conditions import Span, When
from dispatcher.config.values import (
    Boolean,
    Choice,
    Countries,
    Country,
    Day,
    DnsLabel,
    DnsName,
    Duration,
    Instant,
    Moment,
    Positive,
    Strict,
    Text,
    Word,
    fail,
    short_form,
)
from residency.exceptions import Category
from residency.sets import Of
from residency.vocabulary import EVERY_LABEL, Effect, Flow, Mode, Queued, Running


class FlowsOf(Strict):
    flows: Annotated[tuple[Choice[Flow], ...], Field(description="Copies of which flows.", min_length=1)]


class Encrypt(Strict):
    kms_country: Annotated[Countries | None, Field(description="Where the keys must be; absent = anywhere.")] = None


class ObligationEntry(Strict):
    """What must be done where the rule grants. One duty an entry; over all rules the strictest wins."""

    encrypt_at_rest: Annotated[Encrypt | None, Field(description="Encrypted where it lies.")] = None
    ephemeral_cache: Annotated[Boolean, Field(description="Copies beside the computation in scratch space only.")] = (
        False
    )
    cache_ttl: Annotated[Duration | None, Field(description="Copies are gone after this.")] = None
    delete_on_completion: Annotated[FlowsOf | None, Field(description="Copies are gone when the run ends.")] = None
    retain: Annotated[Duration | None, Field(description="Kept for at least this.")] = None
    no_checkpoint_egress: Annotated[Boolean, Field(description="Checkpoints stay at their site.")] = False
    local_logs: Annotated[Boolean, Field(description="Logs stay in the country of the computation.")] = False
    log_scrub: Annotated[Boolean, Field(description="What the data says is taken out of logs.")] = False
    record: Annotated[
        tuple[Word, ...] | None, Field(description="Recorded with the run, such as image_digest.", min_length=1)
    ] = None

    @model_validator(mode="after")
    def _one_duty(self) -> ObligationEntry:
        said = [name for name in type(self).model_fields if getattr(self, name) not in (None, False)]
        if len(said) != 1:
            raise fail("an entry is exactly one duty", "such as - local_logs: true")
        return self


class ExceptableEntry(Strict):
    """Who may grant exceptions from the rule. Without it the rule is hard."""

    approvers: Annotated[tuple[Word, ...], Field(description="Roles, one of which approves.", min_length=1)]
    max_days: Annotated[Positive, Field(description="Longest exception, days.")] = 30


class OnChangeEntry(Strict):
    """What becomes of work that becomes illegal."""

    running: Annotated[Choice[Running], Field(description="keep, drain or stop_now.")] = Running.DRAIN
    grace: Annotated[Duration | None, Field(description="How long draining may take.")] = None
    queued: Annotated[Choice[Queued], Field(description="requeue or hold.")] = Queued.REQUEUE


class RuleEntry(Strict):
    """One rule. Forbid wins, require must hold, and without a permit that holds nothing may happen."""

    labels: Annotated[
        tuple[Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,62})$")], ...],
        Field(description="Labels of data.yaml it speaks of; '*' = every label, not for permits.", min_length=1),
    ]
    flows: Annotated[tuple[Choice[Flow], ...], Field(description="Flows it speaks of.", min_length=1)]
    effect: Annotated[Choice[Effect], Field(description="permit, forbid or require.")]
    when: Annotated[When | None, Field(description="All of it must hold; absent = always.")] = None
    obligations: Annotated[tuple[ObligationEntry, ...], Field(description="What must be done then.")] = ()
    mode: Annotated[Choice[Mode], Field(description="enforce; warn only tells; shadow only records.")] = Mode.ENFORCE
    exceptable: Annotated[ExceptableEntry | None, Field(description="Absent = hard: no exceptions.")] = None
    on_change: Annotated[OnChangeEntry, Field(description="What becomes of work when it turns illegal.")] = (
        OnChangeEntry()
    )
    valid: Annotated[Span | None, Field(description="When it is in force; absent = always.")] = None
    law: Annotated[Text | None, Field(description="By which law or contract.")] = None
    description: Annotated[Text | None, Field(description="For people.")] = None

    @model_validator(mode="after")
    def _no_permit_for_everything(self) -> RuleEntry:
        if EVERY_LABEL in self.labels and self.effect is Effect.PERMIT:
            raise fail("a permit for every label", "name the labels; '*' is for forbid and require")
        return self


class MemberEntry(Strict):
    """A member: just its name ("@name" for a set), or with the time in which it belongs."""

    model_config = short_form(r"^@?[A-Za-z0-9]", "A country or product by its name, or @name for another set.")

    country: Annotated[Country | None, Field(description="A country.")] = None
    product: Annotated[Text | None, Field(description="A GPU product.")] = None
    set: Annotated[DnsLabel | None, Field(description="Another set.")] = None
    since: Annotated[Moment | None, Field(alias="from", description="First instant in which it belongs.")] = None
    until: Annotated[Moment | None, Field(description="First instant in which it belongs no more.")] = None
    source: Annotated[Text | None, Field(description="Where that is written.")] = None

    @model_validator(mode="after")
    def _one(self) -> MemberEntry:
        if sum(value is not None for value in (self.country, self.product, self.set)) != 1:
            raise fail("a member is exactly one of country, product and set", "such as {country: GB, until: ...}")
        return self


class _SetBase(Strict):
    source: Annotated[Text, Field(description="Where membership is written; people look it up again there.")]
    verify_by: Annotated[Day | None, Field(description="Day to look the source up again.")] = None
    until: Annotated[Moment | None, Field(description="From then on nobody belongs: revoked.")] = None


class SetEntry(_SetBase):
    """A dated set of countries or of GPU products."""

    of: Annotated[Choice[Of], Field(description="countries or products.")] = Of.COUNTRIES
    members: Annotated[
        tuple[MemberEntry, ...],
        Field(description="Names, '@set', or {country: .., from: .., until: .., source: ..}.", min_length=1),
    ]

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        """A bare name is a member of the kind that the set is of."""
        if not isinstance(value, dict) or not isinstance(value.get("members"), list):
            return value
        key = "product" if value.get("of") == Of.PRODUCTS.value else "country"
        members = [
            entry if not isinstance(entry, str) else {"set": entry[1:]} if entry.startswith("@") else {key: entry}
            for entry in value["members"]
        ]
        return {**value, "members": members}


class ScopeEntry(Strict):
    """What an exception is for: at least two of these."""

    queues: Annotated[tuple[DnsName, ...], Field(description="ClusterQueues.")] = ()
    workloads: Annotated[tuple[Text, ...], Field(description="namespace/name.")] = ()
    data_sets: Annotated[tuple[Word, ...], Field(description="Data sets.")] = ()
    clusters: Annotated[tuple[DnsLabel, ...], Field(description="Clusters or stores at either end.")] = ()


class Term(Strict):
    """Half-open [from, until), UTC. Both ends are needed."""

    since: Annotated[Instant, Field(alias="from", description="First instant in which it counts.")]
    until: Annotated[Instant, Field(description="First instant in which it counts no more.")]


class ExceptionEntry(Strict):
    """An exception from named rules, inside a scope, until a day."""

    rules: Annotated[tuple[DnsName, ...], Field(description="Rules by id; no wildcard.", min_length=1)]
    scope: Annotated[ScopeEntry, Field(description="What it is for; at least two parts.")]
    reason: Annotated[Text, Field(description="Why.")]
    ticket: Annotated[Text, Field(description="Where it was decided.")]
    requested_by: Annotated[Text, Field(description="Who asked for it.")]
    approved_by: Annotated[Text, Field(description="Who granted it; not the requester.")]
    approver_role: Annotated[Word, Field(description="The role that grants it: one of the rule's approvers.")]
    valid: Annotated[Term, Field(description="From when until when.")]
    category: Annotated[Choice[Category], Field(description="waiver, or mitigated by obligations.")] = Category.WAIVER
    obligations: Annotated[tuple[ObligationEntry, ...], Field(description="What must be done instead.")] = ()

    @model_validator(mode="after")
    def _mitigates(self) -> ExceptionEntry:
        if self.category is Category.MITIGATED and not self.obligations:
            raise fail("mitigated by nothing", "write obligations:, or category: waiver")
        return self


class DeclassificationEntry(Strict):
    """What a transformation takes off data, bound to the digest of the image that runs it."""

    transformation: Annotated[Word, Field(description="Its name, as in data.yaml's made_by.")]
    image: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$", description="The image's content digest, sha256:...")]
    removes: Annotated[tuple[Word, ...], Field(description="Labels it takes off.", min_length=1)]
    becomes: Annotated[tuple[Word, ...], Field(description="Labels it puts there instead.", min_length=1)]
    evidence: Annotated[Text, Field(description="The assessment behind it.")]
    requested_by: Annotated[Text, Field(description="Who asked for it.")]
    approved_by: Annotated[Text, Field(description="Who granted it; not the requester.")]
    valid: Annotated[Term, Field(description="From when until when.")]


class TenantEntry(Strict):
    """Whose work the queues carry. What is not written is not known, and denies wherever a rule asks for it."""

    queues: Annotated[tuple[DnsName, ...], Field(description="Its ClusterQueues.", min_length=1)]
    country: Annotated[Country | None, Field(description="Where it sits.")] = None
    parent_country: Annotated[Country | None, Field(description="Where its ultimate parent sits.")] = None
    login_countries: Annotated[tuple[Country, ...] | None, Field(description="From where its people log in.")] = None
    login_nationalities: Annotated[tuple[Country, ...] | None, Field(description="Their nationalities.")] = None
    attested: Annotated[Attested | None, Field(description="By whom, and until when.")] = None


class SettingsEntry(Strict):
    """How verdicts are used. Once in all files."""

    max_ttl: Annotated[Duration | None, Field(description="No verdict holds longer.")] = None
    must_cover_expected_runtime: Annotated[
        Boolean, Field(description="true: a run that is expected to outlive its grant is denied.")
    ] = False
    max_age: Annotated[Duration | None, Field(description="Classified dispatch stops when the rules are older.")] = None


class ResidencyFile(Strict):
    """One file of rules. Which file holds what does not matter."""

    rules: Annotated[dict[DnsName, RuleEntry], Field(description="Rules by id.")] = {}
    sets: Annotated[dict[DnsLabel, SetEntry], Field(description="Dated sets by name, used as @name.")] = {}
    exceptions: Annotated[dict[DnsName, ExceptionEntry], Field(description="Exceptions by id.")] = {}
    declassifications: Annotated[
        dict[DnsName, DeclassificationEntry], Field(description="Transformations that take labels off, by id.")
    ] = {}
    tenants: Annotated[dict[DnsName, TenantEntry], Field(description="End users by name.")] = {}
    settings: Annotated[SettingsEntry | None, Field(description="How verdicts are used.")] = None
