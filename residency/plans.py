"""Plans: everything that a placement or a copy implies, each part a hop of its own, and all of them must hold.

A job on a cluster is not one flow. It processes there, reads from somewhere, caches, writes checkpoints and outputs to
stores, sends logs, and people may log in. Copies go by hops, each of which is judged: a staging bucket in a forbidden
place kills the plan even when both ends are fine (residency.md section 4.8). Legality is a filter and never a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from residency.derivation import Inherited, Labels
from residency.duties import stays_at_site
from residency.facts import Place, Question, Tenant, earliest
from residency.judge import Law, capped, contradictions, judge
from residency.obligations import Duty, Obligation, unite
from residency.verdict import Because, Code, Verdict, Would, digest
from residency.vocabulary import AS_USUAL, Answer, Flow, OnChange

Ask = Callable[[Question, str], Verdict]
"""`judge` with its law: one question about one label."""

MOST_TURNS = 64
"""How many changes ahead a long run is followed; beyond, its grant counts as ending there."""


@dataclass(frozen=True, slots=True)
class Cargo:
    """What a hop carries: an artefact with its labels already derived, and where it lies."""

    name: str
    labels: Labels
    home: tuple[str, ...] = ()
    persons: int | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """One flow of one artefact from a place to a place."""

    flow: Flow
    cargo: Cargo
    destination: Place
    source: Place | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Hops on behalf of one workload. `expected_end`: until when it is expected to need what is granted."""

    hops: tuple[Hop, ...]
    queue: str = ""
    workload: str = ""
    tenant: Tenant | None = None
    products: tuple[str, ...] | None = None
    expected_end: datetime | None = None

    def question(self, hop: Hop, now: datetime, label: Inherited | None = None) -> Question:
        """What is asked of the law about a hop; of one label where it matters who brings it."""
        brought_by = label.brought_by if label is not None else ()
        return Question(
            flow=hop.flow,
            now=now,
            destination=hop.destination,
            source=hop.source,
            tenant=self.tenant,
            home=hop.cargo.home,
            products=self.products,
            persons=hop.cargo.persons,
            queue=self.queue,
            workload=self.workload,
            data_sets=brought_by or (hop.cargo.name,),
        )


Hear = Callable[[Plan, Hop, datetime], Sequence[Verdict]]
"""A verdict on each label of a hop, in their order: `one_by_one`, or a memo of it."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """All verdicts of a plan, in order of flow, artefact, places and label. `turns_at`: when a grant that holds now
    ends before the run is expected to. Obligations are those of all hops, each with the flow that it is for."""

    answer: Answer
    verdicts: tuple[Verdict, ...]
    obligations: tuple[tuple[Flow, Obligation], ...] = ()
    would: tuple[Would, ...] = ()
    valid_until: datetime | None = None
    turns_at: datetime | None = None

    @property
    def allowed(self) -> bool:
        return self.answer is Answer.ALLOW

    @property
    def against(self) -> tuple[Verdict, ...]:
        """What stands in the way."""
        return tuple(verdict for verdict in self.verdicts if not verdict.allowed)

    @property
    def digest(self) -> str:
        """Of everything but places: the same for the same law and facts, however they were written down."""
        return digest(self)


def one_by_one(ask: Ask) -> Hear:
    """Each label of a hop asked about for itself."""

    def hear(plan: Plan, hop: Hop, now: datetime) -> Sequence[Verdict]:
        return [
            ask(plan.question(hop, now, one), one.label).on(hop.cargo.name, one.chain)
            for one in hop.cargo.labels.inherited
        ]

    return hear


def judge_plan(law: Law, plan: Plan, now: datetime, hear: Hear | None = None) -> Ruling:
    """Judge every hop for every label, and what holds between them. `hear` may be a memo; it changes no answer."""
    heard = hear if hear is not None else one_by_one(lambda question, label: judge(law, question, label))
    ruling = _judge_all(plan, now, heard)
    if ruling.allowed and plan.expected_end is not None:
        ruling = _followed(law, plan, now, heard, ruling)
    ends = capped(law, ruling.valid_until, now)
    return ruling if ends == ruling.valid_until else replace(ruling, valid_until=ends)


def _judge_all(plan: Plan, now: datetime, hear: Hear) -> Ruling:
    verdicts: list[Verdict] = []
    for hop in plan.hops:
        verdicts += _united(hear(plan, hop, now))
    ends = [hop.cargo.labels.changes for hop in plan.hops] + [verdict.valid_until for verdict in verdicts]
    if any(verdict.obligations for verdict in verdicts):
        verdicts = _without_egress(plan, verdicts, now)
    verdicts.sort(key=_place_in_order)
    answers = {verdict.answer for verdict in verdicts}
    worst = next((a for a in (Answer.DENY, Answer.INDETERMINATE) if a in answers), Answer.ALLOW)
    return Ruling(
        answer=worst if plan.hops else Answer.DENY,
        verdicts=tuple(verdicts),
        obligations=_duties(verdicts) if worst is Answer.ALLOW else (),
        would=tuple(dict.fromkeys(would for verdict in verdicts for would in verdict.would)),
        valid_until=earliest(*ends),
    )


def _united(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """The labels of one copy bind together: what they oblige to must go together too."""
    if len(verdicts) < 2 or sum(1 for verdict in verdicts if verdict.obligations) < 2:
        return verdicts
    union = unite(one for verdict in verdicts for one in verdict.obligations)
    if not union.conflicts:
        return verdicts
    because, change = next(iter(contradictions(union)))
    return [_denied(one, because, change) if one.allowed and one.obligations else one for one in verdicts]


def _without_egress(plan: Plan, verdicts: list[Verdict], now: datetime) -> list[Verdict]:
    """A label that must not leave the site with a checkpoint says so wherever it is granted anything."""
    kept = {v.label: one for v in verdicts for one in v.obligations if one.duty is Duty.NO_CHECKPOINT_EGRESS}
    if not kept:
        return verdicts
    found = []
    for verdict in verdicts:
        because = None
        if verdict.flow is Flow.CHECKPOINT and verdict.allowed and verdict.label in kept:
            hop = next(h for h in plan.hops if h.flow is Flow.CHECKPOINT and h.destination.name == verdict.destination)
            because, _ = stays_at_site(kept[verdict.label], plan.question(hop, now))
        found.append(verdict if because is None else _denied(verdict, because, kept[verdict.label].on_change))
    return found


def _denied(verdict: Verdict, because: Because, on_change: OnChange = AS_USUAL) -> Verdict:
    return replace(verdict, answer=Answer.DENY, because=because, obligations=(), on_change=on_change)


def _duties(verdicts: Iterable[Verdict]) -> tuple[tuple[Flow, Obligation], ...]:
    by_flow: dict[Flow, list[Obligation]] = {}
    for verdict in verdicts:
        if verdict.obligations:
            by_flow.setdefault(verdict.flow, []).extend(verdict.obligations)
    return tuple((flow, one) for flow in sorted(by_flow) for one in unite(by_flow[flow]).obligations)


def _place_in_order(verdict: Verdict) -> tuple[str, str, str, str, str]:
    return (verdict.flow, verdict.artefact, verdict.source, verdict.destination, verdict.label)


def _followed(law: Law, plan: Plan, now: datetime, hear: Hear, ruling: Ruling) -> Ruling:
    """Whether the grant lasts as long as the run is expected to. Changes that leave it standing are passed over."""
    assert plan.expected_end is not None
    relabelled = earliest(*(hop.cargo.labels.changes for hop in plan.hops))
    turn = ruling.valid_until
    for _ in range(MOST_TURNS):
        if turn is None or turn >= plan.expected_end:
            return ruling
        if relabelled is not None and turn >= relabelled:
            break
        later = _judge_all(plan, turn, hear)
        if not later.allowed:
            break
        turn = later.valid_until
    ruling = replace(ruling, turns_at=turn)
    if not law.bundle.settings.must_cover_expected_runtime:
        return ruling
    because = Because(
        Code.OUTLIVES_AUTHORITY,
        fact="time.now",
        seen=(plan.expected_end.isoformat(),),
        expected=(ruling.turns_at.isoformat(),) if ruling.turns_at is not None else (),
    )
    denied = tuple(_denied(verdict, because) for verdict in ruling.verdicts)
    return replace(ruling, answer=Answer.DENY, verdicts=denied, obligations=())


def first_legal(law: Law, plans: Iterable[Plan], now: datetime, hear: Hear | None = None) -> tuple[int | None, Ruling]:
    """The first of some plans (cheapest first) that is legal, with its ruling; else None with the ruling on the first.

    Raises ValueError without any plan.
    """
    refused: Ruling | None = None
    for index, plan in enumerate(plans):
        ruling = judge_plan(law, plan, now, hear)
        if ruling.allowed:
            return index, ruling
        refused = refused or ruling
    if refused is None:
        raise ValueError("no plan to choose from")
    return None, refused
