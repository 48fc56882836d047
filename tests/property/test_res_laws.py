"""The laws of the law (residency.md section 5, last line): what never widens, and what never changes an answer."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from residency.bundle import Bundle, Settings, bundle_of
from residency.clauses import ALLOWED, Clause, Group, Operator, Quantifier
from residency.derivation import Artefact, Declassification, Inherited, Labels, Made, labels_of
from residency.exceptions import Scope, Waiver
from residency.facts import FACTS, Attestation, Place, Record, Shape, Tenant
from residency.judge import law_of
from residency.memo import Memo
from residency.moments import moments
from residency.obligations import Duty, Obligation
from residency.plans import Cargo, Hop, Plan, Ruling, judge_plan
from residency.rules import Exceptable, Rule
from residency.sets import Member, Of, Set
from residency.vocabulary import EVERY_LABEL, Answer, Effect, Flow, Mode
from tests.examples import examples

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
INSTANTS = tuple(NOW + timedelta(days=days) for days in (-40, -1, 0, 1, 40))
COUNTRIES, LABELS = ("DE", "US", "CN"), ("a", "b", "unlabelled")
FLOWS = (Flow.PROCESS, Flow.CHECKPOINT, Flow.LOGS, Flow.REPLICATE)
DUTIES = (Duty.CACHE_TTL, Duty.RETAIN, Duty.ENCRYPT_AT_REST, Duty.LOG_SCRUB, Duty.NO_CHECKPOINT_EGRESS, Duty.LOCAL_LOGS)
few = examples(40, suppress_health_check=[HealthCheck.too_slow])
instants = st.none() | st.sampled_from(INSTANTS)
some_countries = st.lists(st.sampled_from(COUNTRIES), max_size=2, unique=True).map(lambda c: tuple(sorted(c)))
known_countries = st.none() | some_countries

_ASKED = (
    "destination.country", "provider.parent_country", "support.countries", "destination.certifications", "kms.holder",
    "support.us_persons_only", "source.country", "tenant.parent_country", "gpu.products", "data.persons", "time.now",
)  # fmt: skip
_WORDS = {
    Shape.COUNTRY: (*COUNTRIES, "@one", "@two"),
    Shape.COUNTRIES: (*COUNTRIES, "@one", "@two"),
    Shape.WORD: ("own", "provider"),
    Shape.WORDS: ("iso", "dpf"),
    Shape.PRODUCTS: ("h100", "l40s"),
    Shape.BOOL: ("true", "false"),
}


@st.composite
def clauses(draw: st.DrawFn) -> Clause:
    fact = FACTS[draw(st.sampled_from(_ASKED))]
    operator = draw(st.sampled_from(sorted(ALLOWED[fact.shape])))
    if fact.shape is Shape.NUMBER:
        return Clause(fact.name, operator, number=draw(st.integers(0, 3)))
    if operator is Operator.BETWEEN:
        return Clause(fact.name, operator, since=draw(instants), until=draw(instants))
    values = draw(st.lists(st.sampled_from(_WORDS[fact.shape]), min_size=1, max_size=2, unique=True))
    return Clause(fact.name, operator, tuple(sorted(values)))


groups = st.builds(Group, st.sampled_from(Quantifier), st.lists(clauses(), min_size=1, max_size=2).map(tuple))
obligations = st.builds(
    Obligation,
    st.sampled_from(DUTIES),
    countries=st.sampled_from(((), ("DE",), ("@one",))),
    seconds=st.sampled_from((60, 3600)),
)


@st.composite
def rules(draw: st.DrawFn, name: str, effects: tuple[Effect, ...] = tuple(Effect)) -> Rule:
    effect = draw(st.sampled_from(effects))
    labels = LABELS if effect is Effect.PERMIT else (*LABELS, EVERY_LABEL)
    return Rule(
        id=name,
        labels=tuple(draw(st.lists(st.sampled_from(labels), min_size=1, max_size=2, unique=True))),
        flows=tuple(draw(st.lists(st.sampled_from(FLOWS), min_size=1, max_size=4, unique=True))),
        effect=effect,
        when=tuple(draw(st.lists(groups, max_size=2))),
        obligations=tuple(draw(st.lists(obligations, max_size=2))),
        mode=draw(st.sampled_from((Mode.ENFORCE, Mode.ENFORCE, Mode.SHADOW, Mode.WARN))),
        exceptable=draw(st.sampled_from((None, Exceptable(("dpo",))))),
        since=draw(instants),
        until=draw(instants),
    )


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    count = draw(st.integers(1, 5))
    members = [Member(c, since=draw(instants), until=draw(instants)) for c in draw(some_countries)]
    sets = (
        Set("one", Of.COUNTRIES, tuple(members), "s"),
        Set("two", Of.COUNTRIES, (Member(set="one"), Member("DE")), "s", until=draw(instants)),
    )
    waivers = [
        Waiver(
            id=f"w{i}",
            rules=(draw(st.sampled_from([f"r{n}" for n in range(count)])),),
            scope=Scope(queues=("q",), clusters=draw(st.sampled_from((("here",), ("there",))))),
            reason="", ticket="", requested_by="x", approved_by="y", approver_role="dpo",
            since=draw(st.sampled_from(INSTANTS)), expires=draw(st.sampled_from(INSTANTS)),
            obligations=tuple(draw(st.lists(obligations, max_size=1))),
        )
        for i in range(draw(st.integers(0, 2)))
    ]  # fmt: skip
    return bundle_of(Bundle(tuple(draw(rules(f"r{n}")) for n in range(count)), sets, tuple(waivers)))


@st.composite
def places(draw: st.DrawFn, name: str) -> Place:
    words = st.none() | st.lists(st.sampled_from(("cache_ttl", "retain", "encrypt_at_rest", "log_scrub"))).map(tuple)
    return Place(
        name,
        site=draw(st.sampled_from(("s1", "s2"))),
        country=draw(st.none() | st.sampled_from(COUNTRIES)),
        parent_country=draw(st.none() | st.sampled_from(COUNTRIES)),
        support_countries=draw(known_countries),
        us_persons_only=draw(st.none() | st.booleans()),
        key_holder=draw(st.sampled_from((None, "own", "provider"))),
        key_country=draw(st.none() | st.sampled_from(COUNTRIES)),
        log_sink=draw(known_countries),
        certifications=draw(st.sampled_from((None, (), (Record("iso"), Record("dpf", INSTANTS[3]))))),
        fulfils=draw(words),
        attested=draw(st.none() | st.builds(Attestation, st.just("p"), until=instants)),
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    here, there = draw(places("here")), draw(places("there"))
    tenant = draw(
        st.none() | st.builds(Tenant, st.just("t"), st.just(("q",)), parent_country=st.sampled_from(COUNTRIES))
    )
    if tenant is not None:
        tenant = replace(tenant, attested=Attestation("p", draw(instants)))
    hops = []
    for index in range(draw(st.integers(1, 3))):
        labels = draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=3, unique=True))
        home = draw(some_countries)
        cargo = Cargo(
            f"d{index}", Labels(tuple(Inherited(x, ()) for x in sorted(labels))), home, draw(st.none() | st.just(2))
        )
        hops.append(Hop(draw(st.sampled_from(FLOWS)), cargo, here, draw(st.sampled_from((there, here, None)))))
    products = draw(st.none() | st.sampled_from(((), ("h100",))))
    return Plan(tuple(hops), "q", "w", tenant, products)


def ruled(bundle: Bundle, plan: Plan, now: datetime = NOW) -> Ruling:
    return judge_plan(law_of(bundle), plan, now)


def never_widens(before: Ruling, after: Ruling) -> None:
    assert before.allowed or not after.allowed


@few
@given(bundles(), plans(), st.data())
def test_a_further_forbid_or_require_never_widens(bundle: Bundle, plan: Plan, data: st.DataObject) -> None:
    further = data.draw(rules("zz", (Effect.FORBID, Effect.REQUIRE)))
    never_widens(ruled(bundle, plan), ruled(bundle_of(replace(bundle, rules=(*bundle.rules, further))), plan))


@few
@given(bundles(), plans(), st.data())
def test_a_stricter_bundle_never_admits_more(bundle: Bundle, plan: Plan, data: st.DataObject) -> None:
    """Without a permit, without an exception, with a clause more in a permit, and with a trial rule enforced."""
    before, at = ruled(bundle, plan), data.draw(st.integers(0, len(bundle.rules) - 1))
    rule = bundle.rules[at]
    if rule.effect is Effect.PERMIT and not rule.obligations:
        without = tuple(r for r in bundle.rules if r is not rule)
        never_widens(before, ruled(bundle_of(replace(bundle, rules=without)), plan))
        narrower = replace(rule, when=(*rule.when, data.draw(groups)))
        never_widens(before, ruled(bundle_of(replace(bundle, rules=(*without, narrower))), plan))
    elif rule.effect is not Effect.PERMIT:
        enforced = tuple(replace(r, mode=Mode.ENFORCE) if r is rule else r for r in bundle.rules)
        never_widens(before, ruled(bundle_of(replace(bundle, rules=enforced)), plan))
    plain = [w for w in bundle.exceptions if w.obligations]
    never_widens(before, ruled(bundle_of(replace(bundle, exceptions=tuple(plain))), plan))


@few
@given(bundles(), plans(), st.data())
def test_removing_a_label_never_narrows_and_adding_a_data_set_never_widens(
    bundle: Bundle, plan: Plan, data: st.DataObject
) -> None:
    before = ruled(bundle, plan)
    extra = data.draw(plans()).hops[0]
    never_widens(before, ruled(bundle, replace(plan, hops=(*plan.hops, extra))))
    at = data.draw(st.integers(0, len(plan.hops) - 1))
    hop = plan.hops[at]
    fewer = Labels(hop.cargo.labels.inherited[1:])
    hops = (*plan.hops[:at], replace(hop, cargo=replace(hop.cargo, labels=fewer)), *plan.hops[at + 1 :])
    never_widens(ruled(bundle, replace(plan, hops=hops)), before)


CLEARABLE = [f.name for f in fields(Place) if f.name not in ("name", "kind", "site")]


@few
@given(bundles(), plans(), st.data())
def test_clearing_any_fact_never_widens(bundle: Bundle, plan: Plan, data: st.DataObject) -> None:
    before = ruled(bundle, plan)
    cleared_fact: dict[str, Any] = {data.draw(st.sampled_from(CLEARABLE)): None}

    def cleared(place: Place | None) -> Place | None:
        return None if place is None else replace(place, **cleared_fact)

    hops = tuple(
        replace(h, destination=cleared(h.destination) or h.destination, source=cleared(h.source)) for h in plan.hops
    )
    never_widens(before, ruled(bundle, replace(plan, hops=hops)))
    for less in (replace(plan, tenant=None), replace(plan, products=None)):
        never_widens(before, ruled(bundle, less))
    homeless = tuple(replace(h, cargo=replace(h.cargo, home=(), persons=None)) for h in plan.hops)
    never_widens(before, ruled(bundle, replace(plan, hops=homeless)))
    sourceless = tuple(replace(h, source=None) for h in plan.hops)
    never_widens(before, ruled(bundle, replace(plan, hops=sourceless)))


@few
@given(
    bundles(), st.lists(plans(), min_size=1, max_size=3), st.lists(st.sampled_from(INSTANTS), min_size=1, max_size=5)
)
def test_a_memo_answers_as_naive_judging_does(bundle: Bundle, asked: list[Plan], times: list[datetime]) -> None:
    law = law_of(bundle)
    memo = Memo(law)
    for now in times:
        for plan in asked:
            naive, remembered = judge_plan(law, plan, now), judge_plan(law, plan, now, memo.hear)
            assert naive == remembered


@few
@given(bundles(), plans())
def test_an_answer_holds_until_it_says_and_between_the_known_moments(bundle: Bundle, plan: Plan) -> None:
    before = ruled(bundle, plan)
    end = before.valid_until if before.valid_until is not None else NOW + timedelta(days=400)
    for now in (NOW + (end - NOW) / 3, end - timedelta(microseconds=1)):
        assert ruled(bundle, plan, now).answer is before.answer
    law = law_of(bundle)
    facts = [p for h in plan.hops for p in (h.destination, h.source) if p is not None]
    known = moments(law, [*facts, *([plan.tenant] if plan.tenant else [])])
    if before.valid_until is not None:
        assert before.valid_until in known


@few
@given(bundles(), plans(), st.randoms(use_true_random=False))
def test_no_order_shows_and_the_same_is_the_same(bundle: Bundle, plan: Plan, dice) -> None:  # type: ignore[no-untyped-def]
    mixed = list(bundle.rules)
    dice.shuffle(mixed)
    hops = list(plan.hops)
    dice.shuffle(hops)
    again = bundle_of(replace(bundle, rules=tuple(mixed), settings=Settings()))
    assert again.digest == bundle.digest
    ruling = ruled(again, replace(plan, hops=tuple(hops)))
    assert ruling.digest == ruled(bundle, plan).digest
    assert (ruling.answer is Answer.ALLOW) == (not ruling.against)


names = st.sampled_from([f"n{i}" for i in range(6)])


@few
@given(
    st.dictionaries(
        names, st.tuples(st.lists(st.sampled_from("ab"), max_size=1), st.lists(names, max_size=3)), min_size=1
    )
)
def test_what_is_made_carries_all_that_it_was_made_from(graph: dict[str, tuple[list[str], list[str]]]) -> None:
    """Rings included: the labels of a source are among those of what is made from it."""
    catalog = {
        name: Artefact(name, labels=tuple(own), derived_from=tuple(sources), made=Made("t", "other"))
        for name, (own, sources) in graph.items()
    }
    declared = (Declassification("d", "t", "image", ("a",), ("b",), "e", "x", "y", INSTANTS[0], INSTANTS[4]),)
    found = {name: set(labels_of(name, catalog, declared, NOW).names) for name in catalog}
    for name, artefact in catalog.items():
        assert found[name]
        for source in artefact.derived_from:
            if source in catalog:
                assert found[source] - {"unlabelled"} <= found[name]
            else:
                assert "unlabelled" in found[name]
