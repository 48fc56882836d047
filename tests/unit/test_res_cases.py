"""The tricky cases of residency.md section 5, each by its number, from files to the ruling."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatcher.config import BlueprintWatcher
from residency.counterfactual import would_allow
from residency.derivation import Artefact, Inherited, Labels, Made, labels_of
from residency.facts import Attestation, Gap, Tenant
from residency.judge import law_of
from residency.memo import Memo
from residency.obligations import Duty
from residency.plans import Cargo, Hop, first_legal, judge_plan
from residency.soundness import Flaw
from residency.verdict import Code
from residency.vocabulary import Answer, Flow, Mode, Running
from tests.unit import blueprint_files
from tests.unit.res_world import (
    NOW,
    OWN,
    RULES,
    SETS,
    bundle_of_texts,
    cargo,
    dpf,
    flaws,
    job,
    law,
    made_of,
    one,
    place,
    read,
    reasons,
    ruled,
    store,
)

SE, DE, FR, NORWAY = place("gpu-sto", "SE"), place("gpu-fra", "DE"), place("gpu-par", "FR"), place("gpu-osl", "NO")
US, CN = place("gpu-us", "US"), place("gpu-bj", "CN")
FIXTURES = law()


def exception(**fields: str) -> str:
    """An exception file; every field may be said otherwise."""
    said = {
        "rules": "[gdpr-eea-only]",
        "scope": "{queues: [q], clusters: [gpu-us]}",
        "reason": "evaluation",
        "ticket": "GOV-1",
        "requested_by": "perception",
        "approved_by": "dpo-office",
        "approver_role": "dpo",
        "valid": "{from: 2026-11-20T00:00:00Z, until: 2026-11-29T12:00:00Z}",
        **fields,
    }
    return "exceptions:\n  e:\n" + "".join(f"    {key}: {value}\n" for key, value in said.items())


def test_res_01_norway_is_in_the_eea() -> None:
    text = SETS.replace("DK, EE", "NO, SE, DK, EE")
    bundle, problems = read(RULES, text)
    assert problems == []
    assert {m.name for s in bundle.sets if s.id == "eea" for m in s.members} >= {"NO", "SE"}
    assert ruled(law_of(bundle), one(Flow.PROCESS, NORWAY, "personal-eu")).allowed


def test_res_02_the_permissive_label_of_two_does_not_win() -> None:
    ruling = ruled(FIXTURES, one(Flow.PROCESS, FR, "personal-eu", "customer-acme"))
    assert reasons(ruling) == [("process", "no-permit", "acme-contract")]
    (verdict,) = ruling.against
    assert verdict.because.clause == "destination.country in DE SE"
    assert str(verdict.because.clause_at).startswith("residency/0.yaml:")
    assert verdict.because.seen == ("FR",)


def test_res_03_a_region_is_not_a_jurisdiction() -> None:
    ruling = ruled(FIXTURES, one(Flow.PROCESS, replace(DE, parent_country="US"), "personal-eu"))
    (verdict,) = ruling.against
    assert (ruling.answer, verdict.because.fact, verdict.because.seen) == (
        Answer.DENY,
        "provider.parent_country",
        ("US",),
    )


def test_res_04_a_missing_fact_denies_with_a_code_of_its_own() -> None:
    ruling = ruled(FIXTURES, one(Flow.PROCESS, replace(DE, parent_country=None), "personal-eu"))
    (verdict,) = ruling.against
    assert (ruling.answer, verdict.code, verdict.because.fact) == (
        Answer.INDETERMINATE,
        Code.FACT_UNKNOWN,
        "provider.parent_country",
    )
    assert verdict.because.gap is Gap.MISSING


def test_res_05_a_forbid_that_cannot_be_judged_is_never_dropped() -> None:
    forbid = """\
rules:
  no-shared-keys:
    labels: [public]
    flows: [process]
    effect: forbid
    when: {kms.holder: {equals: provider}}
"""
    known = law(forbid)
    assert ruled(known, one(Flow.PROCESS, replace(SE, key_holder="own"), "public")).allowed
    ruling = ruled(known, one(Flow.PROCESS, SE, "public"))
    assert (ruling.answer, reasons(ruling)) == (
        Answer.INDETERMINATE,
        [("process", "fact-unknown", "no-shared-keys")],
    )


def test_res_06_a_sealed_copy_is_storage_only() -> None:
    french = replace(FR, us_persons_only=False, support_nationalities=("FR",))
    assert ruled(FIXTURES, one(Flow.REPLICATE_SEALED, store("vault-fr", "FR"), "ear-tech")).allowed
    ruling = ruled(FIXTURES, one(Flow.PROCESS, french, "ear-tech"))
    assert ruling.answer is Answer.DENY
    (verdict,) = ruling.against
    assert (verdict.because.rule, verdict.because.fact) == ("ear-us-persons", "support.us_persons_only")
    assert not ruled(FIXTURES, one(Flow.REPLICATE_SEALED, store("vault-ru", "RU"), "ear-tech")).allowed


BOTH = (Artefact("roads", labels=("public",)), Artefact("camera", labels=("personal-eu",)))


def test_res_07_a_checkpoint_inherits_what_it_was_made_from() -> None:
    checkpoint = made_of("checkpoint", *BOTH)
    plan = job(
        Hop(Flow.PROCESS, cargo("public", name="roads"), SE),
        Hop(Flow.PROCESS, cargo("personal-eu", name="camera"), SE),
        Hop(Flow.CHECKPOINT, checkpoint, store("bucket-us", "US"), SE),
    )
    ruling = ruled(FIXTURES, plan)
    assert {v.flow for v in ruling.verdicts if v.allowed} >= {Flow.PROCESS}
    (verdict,) = ruling.against
    assert (ruling.answer, verdict.flow, verdict.chain) == (Answer.DENY, Flow.CHECKPOINT, ("checkpoint", "camera"))
    home = job(*plan.hops[:2], Hop(Flow.CHECKPOINT, checkpoint, store("bucket-se", "SE"), SE))
    assert ruled(FIXTURES, home).allowed


def test_a_counterfactual_names_the_clause_that_alone_stands_in_the_way() -> None:
    plan = one(Flow.PROCESS, replace(DE, parent_country="US"), "personal-eu")
    (found,) = [c for c in would_allow(FIXTURES, plan, NOW) if c.whole]
    assert (found.rule, found.clause.text(), found.seen) == (
        "gdpr-eea-only",
        "provider.parent_country in @eea-plus-adequate",
        ("US",),
    )
    assert would_allow(FIXTURES, one(Flow.PROCESS, DE, "personal-eu"), NOW) == ()


SCRUBBED = """\
rules:
  scrubbed-logs:
    labels: [personal-eu]
    flows: [logs]
    effect: permit
    when: {destination.country: {not_in: "@eea"}}
    obligations: [{log_scrub: true}]
"""


def test_res_08_logs_leave_only_scrubbed() -> None:
    plan = job(Hop(Flow.LOGS, made_of("logs", *BOTH), place("sink", "US"), SE))
    assert [v.flow for v in ruled(FIXTURES, plan).against] == [Flow.LOGS]
    known = law(SCRUBBED)
    silent = ruled(known, plan)
    assert [v.because.duty for v in silent.against] == [Duty.LOG_SCRUB]
    able = replace(SE, fulfils=("log_scrub",))
    scrubbed = ruled(known, job(Hop(Flow.LOGS, made_of("logs", *BOTH), place("sink", "US"), able)))
    assert scrubbed.allowed
    assert [(flow, duty.duty) for flow, duty in scrubbed.obligations] == [(Flow.LOGS, Duty.LOG_SCRUB)]
    assert ruled(FIXTURES, job(Hop(Flow.LOGS, made_of("logs", *BOTH), place("sink", "DE"), SE))).allowed


def test_res_09_an_exception_ends_at_the_instant_of_its_expiry() -> None:
    known = law(exception())
    plan = one(Flow.PROCESS, US, "personal-eu")
    expiry = datetime(2026, 11, 29, 12, tzinfo=UTC)
    before = ruled(known, plan, expiry - timedelta(seconds=1))
    assert (before.allowed, before.valid_until) == (True, expiry)
    assert before.verdicts[0].exceptions == ("e",)
    assert not ruled(known, plan, expiry).allowed
    memo = Memo(known)
    assert judge_plan(known, plan, expiry - timedelta(seconds=1), memo.hear).allowed
    assert not judge_plan(known, plan, expiry, memo.hear).allowed, "a memo asks the same function"


def test_res_10_what_an_exception_covered_drains_to_where_it_is_legal() -> None:
    known = law(exception(valid="{from: 2026-11-20T00:00:00Z, until: 2026-11-29T18:00:00Z}"))
    plan = one(Flow.PROCESS, US, "personal-eu")
    dispatched = ruled(known, plan)
    assert dispatched.allowed
    expiry = dispatched.valid_until
    assert expiry == datetime(2026, 11, 29, 18, tzinfo=UTC)
    (verdict,) = ruled(known, plan, expiry).against
    assert (verdict.on_change.running, verdict.on_change.grace_s) == (Running.DRAIN, 4 * 3600)
    weights = cargo("personal-eu", name="checkpoint")
    copies = [job(Hop(Flow.CHECKPOINT, weights, store(f"bucket-{c}", c), US)) for c in ("US", "SE")]
    chosen, _ = first_legal(known, copies, expiry)
    assert chosen == 1, "never written to the US to save progress"


def test_an_exception_for_data_goes_with_what_a_run_makes_of_it_when_it_names_all_of_it() -> None:
    known = law(exception(scope="{data_sets: [d], clusters: [gpu-us]}"))

    def logs(*brought_by: str) -> bool:
        label = Inherited("personal-eu", ("the logs", *brought_by[:1]), brought_by)
        hop = Hop(Flow.LOGS, Cargo("the logs", Labels((label,))), US, SE)
        return ruled(known, job(hop), NOW - timedelta(seconds=1)).allowed

    assert ruled(known, one(Flow.PROCESS, US, "personal-eu", name="d"), NOW - timedelta(seconds=1)).allowed
    assert logs("d")
    assert not logs("d", "e"), "one data set may not speak for the other"
    assert not logs("e")


def test_res_11_a_hard_forbid_takes_no_exception() -> None:
    sanctions = """\
rules:
  sanctions:
    labels: ["*"]
    flows: [process]
    effect: forbid
    when: {destination.country: {in: [US]}}
"""
    both = exception(rules="[gdpr-eea-only, sanctions]")
    ruling = ruled(law(sanctions, both), one(Flow.PROCESS, US, "personal-eu"), NOW - timedelta(hours=1))
    assert reasons(ruling) == [("process", "forbidden", "sanctions")]
    (told,) = [fault for fault in flaws(sanctions, both) if fault.flaw is Flaw.EXCEPTION_WITHOUT_EFFECT]
    assert not told.is_error
    assert told.known == ("sanctions",)


@pytest.mark.parametrize(
    ("fields", "flaw"),
    [
        pytest.param({"approved_by": "perception"}, Flaw.SELF_APPROVED, id="approved by who asked"),
        pytest.param(
            {"valid": "{from: 2026-11-01T00:00:00Z, until: 2027-01-01T00:00:00Z}"}, Flaw.TOO_LONG, id="too long"
        ),
        pytest.param({"approver_role": "lead"}, Flaw.NOT_AN_APPROVER, id="not one of the approvers"),
        pytest.param({"scope": "{queues: [q]}"}, Flaw.SCOPE, id="one part of a scope"),
        pytest.param({"rules": "[gdpr]"}, Flaw.RULE, id="an unknown rule"),
    ],
)
def test_res_12_an_exception_that_breaks_its_rules_is_an_error(
    fields: dict[str, str], flaw: Flaw, tmp_path: Path
) -> None:
    found = [fault for fault in flaws(exception(**fields)) if fault.is_error]
    assert [fault.flaw for fault in found] == [flaw]
    assert str(found[0].at).startswith("residency/2.yaml:2:")


def test_res_12_an_exception_without_expiry_is_an_error_and_the_whole_bundle_is_refused(tmp_path: Path) -> None:
    _, problems = read(RULES, SETS, exception(valid="{from: 2026-11-01T00:00:00Z}"))
    assert problems == ["residency/2.yaml:10:5: error: 'valid': the key 'until' is missing; add 'until:'"]
    rules = blueprint_files.RULES.replace("personal:\n", "personal:\n    exceptable: {approvers: [dpo]}\n", 1)
    files: dict[str, str | bytes] = {**blueprint_files.SMALL, blueprint_files.R: rules}
    folder = blueprint_files.write(tmp_path, files)
    watcher = BlueprintWatcher(folder)
    first = watcher.poll(NOW)
    assert first is not None
    assert first.ok
    bad = exception(rules="[personal]", approved_by="perception", scope="{queues: [training], clusters: [home]}")
    blueprint_files.write(folder, {"residency/exceptions/e.yaml": bad})
    second = watcher.poll(NOW)
    assert second is not None
    assert second.policy is None, "the exception is not dropped in silence"
    assert [p.text() for p in second.errors] == [
        "residency/exceptions/e.yaml:2:3: error: 'e': approved by who asked for it (perception); "
        "have somebody else approve it"
    ]
    assert watcher.last_good is first


def test_res_13_a_remote_read_is_an_export() -> None:
    ruling = ruled(FIXTURES, one(Flow.PROCESS, SE, "cn-important", source=store("lake-cn", "CN")))
    (verdict,) = ruling.against
    assert (ruling.answer, verdict.because.rule, verdict.source) == (Answer.DENY, "cn-stays", "lake-cn")


def test_res_14_people_who_look_are_a_flow() -> None:
    desk = place("engineers", "SE")
    batch = [
        Hop(Flow.PROCESS, cargo("cn-important"), CN, store("lake-cn", "CN")),
        Hop(Flow.OUTPUT, cargo("cn-important", name="weights"), store("lake-cn", "CN"), CN),
    ]
    assert ruled(FIXTURES, job(*batch)).allowed
    notebook = job(*batch, Hop(Flow.REMOTE_ACCESS, cargo("cn-important"), desk, CN))
    assert [v.flow for v in ruled(FIXTURES, notebook).against] == [Flow.REMOTE_ACCESS]


def test_res_15_a_staging_hop_kills_the_cheapest_route() -> None:
    lake, far, near = store("lake-de", "DE"), store("stage-us", "US"), store("lake-fr", "FR")
    p = cargo("personal-eu")
    staged = job(Hop(Flow.REPLICATE, p, far, lake), Hop(Flow.REPLICATE, p, near, far))
    direct = job(Hop(Flow.REPLICATE, p, near, lake))
    assert [v.destination for v in ruled(FIXTURES, staged).against] == ["stage-us"]
    chosen, ruling = first_legal(FIXTURES, [staged, direct], NOW)
    assert (chosen, ruling.allowed) == (1, True)


def duty(name: str, what: str, more: str = "") -> str:
    return f"  {name}: {{labels: [public], flows: [cache], effect: require, obligations: [{{{what}}}]{more}}}\n"


def test_res_16_the_strictest_obligation_wins_and_a_contradiction_denies() -> None:
    able = replace(SE, fulfils=("cache_ttl", "retain"))
    two = "rules:\n" + duty("day", "cache_ttl: PT24H") + duty("hour", "cache_ttl: PT1H")
    ruling = ruled(law(two), one(Flow.CACHE, able, "public"))
    assert [(o.duty, o.seconds) for _, o in ruling.obligations] == [(Duty.CACHE_TTL, 3600)]
    ruling = ruled(law(two + duty("week", "retain: P7D")), one(Flow.CACHE, able, "public"))
    assert (ruling.answer, [v.code for v in ruling.against]) == (Answer.DENY, [Code.OBLIGATIONS_CONFLICT])
    assert [v.because.rule for v in ruling.against] == ["day"]


def test_res_16_who_asks_for_a_duty_that_is_not_met_is_named_and_says_what_becomes_of_work_that_runs() -> None:
    mild, harsh = ", on_change: {running: keep}", ", on_change: {running: stop_now}"
    rules = "rules:\n" + duty("day", "cache_ttl: PT24H", mild) + duty("hour", "cache_ttl: PT1H", harsh)
    (verdict,) = ruled(law(rules), one(Flow.CACHE, replace(SE, fulfils=("retain",)), "public")).against
    assert (verdict.code, verdict.because.rule) == (Code.OBLIGATION_UNSUPPORTED, "day")
    assert verdict.on_change.running is Running.STOP_NOW
    (verdict,) = ruled(law("rules:\n" + duty("day", "cache_ttl: PT24H", mild)), one(Flow.CACHE, SE, "public")).against
    assert (verdict.because.rule, verdict.on_change.running) == ("day", Running.KEEP)


ENCRYPTED = """\
rules:
  keys-at-home:
    labels: [public]
    flows: [replicate]
    effect: require
    obligations: [{encrypt_at_rest: {kms_country: "@eea"}}]
"""


def test_res_17_an_obligation_that_nobody_fulfils_denies() -> None:
    known = law(ENCRYPTED)
    cannot = store("lake", "SE", fulfils=("retain",), key_country="SE")
    ruling = ruled(known, one(Flow.REPLICATE, cannot, "public"))
    (verdict,) = ruling.against
    assert (ruling.answer, verdict.code, verdict.because.duty) == (
        Answer.DENY,
        Code.OBLIGATION_UNSUPPORTED,
        Duty.ENCRYPT_AT_REST,
    )
    says_nothing = ruled(known, one(Flow.REPLICATE, replace(cannot, fulfils=None), "public"))
    assert says_nothing.answer is Answer.INDETERMINATE
    can = replace(cannot, fulfils=("encrypt_at_rest",))
    assert ruled(known, one(Flow.REPLICATE, can, "public")).allowed
    abroad = ruled(known, one(Flow.REPLICATE, replace(can, key_country="US"), "public"))
    assert [v.because.fact for v in abroad.against] == ["kms.country"], "what we can see is checked"


REVOKED = SETS.replace(
    "us-dpf: {source: Decision (EU) 2023/1795,", "us-dpf: {source: Decision (EU) 2023/1795, until: 2026-12-15,"
)


def test_res_18_a_grant_that_ends_before_the_run_says_so() -> None:
    plan = replace(
        one(Flow.PROCESS, replace(US, certifications=dpf()), "personal-eu"), expected_end=NOW + timedelta(days=30)
    )
    end = datetime(2026, 12, 15, tzinfo=UTC)
    bundle, problems = read(RULES, REVOKED)
    assert problems == []
    ruling = ruled(law_of(bundle), plan)
    assert (ruling.allowed, ruling.valid_until, ruling.turns_at) == (True, end, end)
    assert not ruled(law_of(bundle), plan, end).allowed
    strict, _ = read(RULES, REVOKED, "settings: {must_cover_expected_runtime: true}\n")
    ruling = ruled(law_of(strict), plan)
    assert (ruling.answer, {v.code for v in ruling.against}) == (Answer.DENY, {Code.OUTLIVES_AUTHORITY})
    assert ruled(law_of(strict), replace(plan, expected_end=NOW + timedelta(days=10))).allowed


def test_res_19_a_broken_bundle_changes_nothing(tmp_path: Path) -> None:
    folder = blueprint_files.write(tmp_path, dict(blueprint_files.SMALL))
    watcher = BlueprintWatcher(folder)
    good = watcher.poll(NOW)
    assert good is not None
    assert good.policy is not None
    for broken in (b"rules: [", b"rules:\n  x: {labels: [personal]}\n", b"\xff", b"x" * 5_000_000, b""):
        blueprint_files.write(folder, {blueprint_files.R: broken})
        bad = watcher.poll(NOW)
        assert bad is not None
        assert bad.policy is None
        assert bad.errors[0].text().startswith("residency/rules.yaml:")
        assert watcher.last_good is good
    (folder / blueprint_files.R).unlink()
    gone = watcher.poll(NOW)
    assert gone is not None
    assert [p.text() for p in gone.errors][-1].startswith("residency:1:1: error: no rules:")


def test_res_20_another_bundle_has_another_digest_and_is_asked_anew() -> None:
    plan = one(Flow.PROCESS, FR, "public")
    old, new = (
        bundle_of_texts(),
        bundle_of_texts(
            "rules:\n  not-there: {labels: [public], flows: [process], effect: forbid, when: "
            "{destination.country: {in: [FR]}}}\n"
        ),
    )
    assert ruled(law_of(old), plan).allowed
    assert old.digest != new.digest
    assert not ruled(law_of(new), plan).allowed


def shadow(mode: str) -> str:
    return (
        f"rules:\n  trial: {{labels: [public], flows: [process], effect: forbid, mode: {mode}, "
        "when: {destination.country: {in: [FR]}}, exceptable: {approvers: [dpo]}}\n"
    )


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.WARN])
def test_res_21_a_shadow_rule_would_have_denied_and_does_not(mode: Mode) -> None:
    ruling = ruled(law(shadow(mode.value)), one(Flow.PROCESS, FR, "public"))
    assert ruling.allowed
    assert [(w.rule, w.mode, w.answer, w.seen) for w in ruling.would] == [("trial", mode, Answer.DENY, ("FR",))]
    assert not ruled(law(shadow("enforce")), one(Flow.PROCESS, FR, "public")).allowed


A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
DECLASSIFIED = f"""\
declassifications:
  blurred:
    transformation: blur
    image: {A}
    removes: [personal-eu]
    becomes: [public]
    evidence: GOV-2
    requested_by: perception
    approved_by: dpo-office
    valid: {{from: 2026-11-01T00:00:00Z, until: 2026-12-01T00:00:00Z}}
"""


@pytest.mark.parametrize(
    ("image", "now", "expected"),
    [
        pytest.param(A, NOW, ("public",), id="the image that was assessed"),
        pytest.param(B, NOW, ("personal-eu",), id="another image"),
        pytest.param(A, datetime(2026, 12, 1, tzinfo=UTC), ("personal-eu",), id="the assessment has expired"),
    ],
)
def test_res_22_labels_come_off_by_an_assessed_image_only(image: str, now: datetime, expected: tuple[str, ...]) -> None:
    known = law(DECLASSIFIED)
    catalog = {
        "camera": Artefact("camera", labels=("personal-eu",)),
        "weights": Artefact("weights", derived_from=("camera",), made=Made("blur", image)),
        "later": Artefact("later", derived_from=("weights",)),
    }
    found = labels_of("later", catalog, known.bundle.declassifications, now)
    assert found.names == expected
    assert found.changes == (datetime(2026, 12, 1, tzinfo=UTC) if image == A and now == NOW else None)


GPU_RULES = """\
rules:
  rasa:
    labels: ["*"]
    flows: [process, remote_access]
    effect: forbid
    mode: shadow
    when: {tenant.parent_country: {in: "@ear-d5"}}
    exceptable: {approvers: [export-control]}
  red-flag:
    labels: ["*"]
    flows: [process]
    effect: forbid
    when:
      gpu.products: {any_of: "@ear-3a090"}
      tenant.parent_country: {in: "@ear-d5"}
    law: BIS guidance of 13 May 2025
"""


def test_res_23_headquarters_and_chip_decide_where_location_would_allow() -> None:
    known = law(GPU_RULES)
    macau = Tenant("visitor", ("q",), "SG", "MO", ("SG",), ("SG",), OWN.attested)
    plan = replace(one(Flow.PROCESS, US, "public"), products=("h100-80gb",))
    assert ruled(known, plan).allowed
    ruling = ruled(known, replace(plan, tenant=macau))
    assert reasons(ruling) == [("process", "forbidden", "red-flag")]
    assert [w.rule for w in ruling.would] == ["rasa"]
    assert ruled(known, replace(plan, tenant=macau, products=("l40s-48gb",))).allowed, "another chip"
    assert ruled(known, replace(plan, products=None)).allowed, "headquarters settle it"
    unknown = ruled(known, replace(plan, tenant=None))
    assert unknown.answer is Answer.INDETERMINATE


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("UK", "'UK': not an ISO 3166-1 country; did you mean 'GB'?"),
        ("EL", "'EL': not an ISO 3166-1 country; did you mean 'GR'?"),
        ("EU", "'EU': a group of countries, not a country; name a set of residency/, such as '@eu27'"),
        (
            "XI",
            "'XI': a customs territory, not a country; write GB, and ask for the customs_territory where it matters",
        ),
    ],
)
def test_res_24_codes_that_are_no_countries_are_named(written: str, expected: str) -> None:
    _, problems = read(f"sets:\n  x: {{source: s, members: [DE, {written}]}}\n")
    assert [p.partition(" error: ")[2] for p in problems] == [expected]


def test_res_24_a_ring_of_sets_is_an_error_and_places_are_what_they_are() -> None:
    links = (("a", "b"), ("b", "c"), ("c", "a"))
    ring = "sets:\n" + "".join(f"  {name}: {{source: s, members: ['@{inner}']}}\n" for name, inner in links)
    (found,) = [fault for fault in flaws(ring) if fault.is_error]
    assert (found.flaw, found.known) == (Flaw.RING, ("a", "b", "c", "a"))
    sets = FIXTURES.sets
    assert sets["doj-concern"].holds("HK", NOW)
    assert not sets["ear-d5"].holds("HK", NOW)
    assert not any(sets[name].holds("TW", NOW) for name in sets)


def test_res_25_facts_grow_old() -> None:
    old = replace(SE, attested=Attestation("platform", at=NOW - timedelta(days=40), max_age_s=30 * 86_400))
    ruling = ruled(FIXTURES, one(Flow.PROCESS, old, "personal-eu"))
    assert (ruling.answer, {v.because.gap for v in ruling.against}) == (Answer.INDETERMINATE, {Gap.EXPIRED})
    assert ruled(FIXTURES, one(Flow.PROCESS, old, "public")).allowed
    fresh = replace(old, attested=Attestation("platform", at=NOW - timedelta(days=10), max_age_s=30 * 86_400))
    assert ruled(FIXTURES, one(Flow.PROCESS, fresh, "personal-eu")).valid_until == NOW + timedelta(days=20)


def everything(seed: int = 0) -> str:
    """The digest of a ruling with many reasons, from files and labels in an order that the seed picks."""
    dice = random.Random(seed)
    texts = [RULES, SETS, SCRUBBED, GPU_RULES, exception(), DECLASSIFIED]
    dice.shuffle(texts)
    bundle, problems = read(*texts)
    assert problems == []
    labels = ["personal-eu", "customer-acme", "ear-tech", "public"]
    dice.shuffle(labels)
    hops = [Hop(flow, cargo(*labels), place, SE) for flow in Flow for place in (FR, US, CN)]
    dice.shuffle(hops)
    known = law_of(bundle)
    memo = Memo(known)
    plan = job(*hops)
    ruling = judge_plan(known, plan, NOW, memo.hear if seed % 2 else None)
    return f"{bundle.digest} {ruling.digest}"


def test_res_26_no_order_shows() -> None:
    assert len({everything(seed) for seed in range(12)}) == 1


@pytest.mark.slow
def test_res_26_no_hash_seed_shows() -> None:
    code = "from tests.unit.test_res_cases import everything; print(everything(3))"
    found = set()
    for seed in ("1", "2", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
        found.add(run.stdout.strip())
    assert found == {everything()}
