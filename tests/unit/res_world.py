"""The fixtures of residency.md section 5: five labels with their rules as a file, places that are attested, and a plan.

Everything goes the whole way: YAML text, strict reading, assembly, soundness, compiled law, plan, ruling.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dispatcher.config.problems import Severity
from dispatcher.config.reading import validate
from dispatcher.config.residency.assemble import RuleFile, assemble
from dispatcher.config.residency.model import ResidencyFile
from dispatcher.config.strictyaml import parse
from residency.bundle import Bundle
from residency.derivation import Artefact, Inherited, Labels, labels_of
from residency.facts import Attestation, Kind, Place, Record, Tenant
from residency.judge import Law, law_of
from residency.plans import Cargo, Hop, Plan, Ruling, judge_plan
from residency.soundness import Fault, faults
from residency.vocabulary import Flow

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LABELS = ("personal-eu", "customer-acme", "cn-important", "ear-tech", "eu-dual-use", "public")
EVERY = "[process, replicate, cache, checkpoint, output, logs, remote_access]"

SETS = """\
sets:
  eea:
    source: Agreement on the European Economic Area
    members: [AT, BE, BG, CY, CZ, DE, DK, EE, ES, FI, FR, GR, HR, HU, IE, IS, IT, LI, LT, LU, LV, MT, NL, NO, PL, PT,
      RO, SE, SI, SK]
  adequate:
    source: Commission decisions
    members: [CH, JP, {country: GB, from: 2021-06-28, until: 2031-12-27, source: renewed 19 Dec 2025}]
  eea-plus-adequate: {source: both, members: ["@eea", "@adequate"]}
  us-dpf: {source: Decision (EU) 2023/1795, members: [{country: US, from: 2023-07-10}]}
  ear-d5: {source: 15 CFR 740 Supplement 1, members: [BY, CN, CU, IR, KP, MO, RU, SY, VE]}
  doj-concern: {source: 28 CFR 202.601, members: [CN, HK, MO, CU, IR, KP, RU, VE]}
  eu-customs: {source: Union Customs Code, members: [DE, FI, FR, SE]}
  ear-3a090: {of: products, source: 15 CFR 774, members: [h100-80gb, h200-141gb, b200-180gb]}
"""

RULES = f"""\
rules:
  gdpr-eea-only:
    labels: [personal-eu]
    flows: {EVERY}
    effect: permit
    when:
      destination.country: {{in: "@eea"}}
      provider.parent_country: {{in: "@eea-plus-adequate"}}
      support.countries: {{subset_of: "@eea"}}
    exceptable: {{approvers: [dpo], max_days: 30}}
    on_change: {{running: drain, grace: PT4H, queued: requeue}}
    law: GDPR Art. 44-46
  gdpr-dpf:
    labels: [personal-eu]
    flows: {EVERY}
    effect: permit
    when:
      destination.country: {{in: "@us-dpf"}}
      destination.certifications: {{any_of: [dpf]}}
    law: Decision (EU) 2023/1795
  acme-contract:
    labels: [customer-acme]
    flows: {EVERY}
    effect: permit
    when: {{destination.country: {{in: [SE, DE]}}}}
  cn-stays:
    labels: [cn-important]
    flows: {EVERY}
    effect: permit
    when: {{destination.country: {{in: CN}}}}
    law: Automotive data guidelines, 2026 edition
  ear-no-d5:
    labels: [ear-tech]
    flows: [process, replicate, replicate_sealed, cache, checkpoint, output, logs, remote_access]
    effect: forbid
    when:
      any:
        - destination.country: {{in: "@ear-d5"}}
        - destination.country: {{equals: RU}}
    law: 15 CFR 744
  ear-us-persons:
    labels: [ear-tech]
    flows: [process]
    effect: require
    when: {{support.us_persons_only: {{equals: true}}}}
    law: 15 CFR 734.13
  ear-process:
    labels: [ear-tech]
    flows: [process, cache]
    effect: permit
    when: {{destination.country: {{in: [US, SE]}}}}
  ear-sealed:
    labels: [ear-tech]
    flows: [replicate_sealed]
    effect: permit
    law: 15 CFR 734.18(a)(5)
  dual-use:
    labels: [eu-dual-use]
    flows: {EVERY}
    effect: permit
    when:
      any:
        - destination.country: {{in: "@eu-customs"}}
        - destination.records: {{any_of: [licence-bafa-77]}}
  public:
    labels: [public]
    flows: {EVERY}
    effect: permit
"""


def read(*texts: str) -> tuple[Bundle, list[str]]:
    """The bundle of some files, and every problem of reading and assembling them."""
    files, problems = [], []
    for index, text in enumerate(texts):
        name = f"residency/{index}.yaml"
        tree, found = parse(name, text.encode())
        problems += found
        if tree is None:
            continue
        got = validate(ResidencyFile, name, tree)
        problems += got.problems
        if got.rest is not None:
            files.append(RuleFile(name, got.rest, got.tree))
    bundle, more = assemble(files, lambda product: product)
    return bundle, [p.text() for p in (*problems, *more) if p.severity is Severity.ERROR]


def bundle_of_texts(*texts: str) -> Bundle:
    """A bundle of which nothing is wrong, the fixtures' sets and rules with it."""
    bundle, problems = read(RULES, SETS, *texts)
    assert problems == []
    errors = [fault for fault in faults(bundle, LABELS, NOW) if fault.is_error]
    assert errors == []
    return bundle


def flaws(*texts: str, now: datetime = NOW) -> list[Fault]:
    """What soundness says of the fixtures with further files."""
    bundle, problems = read(RULES, SETS, *texts)
    assert problems == []
    return list(faults(bundle, LABELS, now))


def law(*texts: str) -> Law:
    return law_of(bundle_of_texts(*texts))


# --- places ------------------------------------------------------------------------------------------------------

VOUCHED = Attestation("platform", until=NOW + timedelta(days=365))


def place(name: str, country: str | None, **facts: object) -> Place:
    """An attested place of which everything is in one country, unless said otherwise."""
    here = (country,) if country is not None else None
    return replace(
        Place(
            name,
            site=f"{name}-site",
            country=country,
            parent_country=country,
            operator_country=country,
            support_countries=here,
            log_sink=here,
            certifications=(),
            records=(),
            attested=VOUCHED,
        ),
        **facts,  # type: ignore[arg-type]
    )


def store(name: str, country: str | None, **facts: object) -> Place:
    return place(name, country, kind=Kind.STORE, **facts)


def dpf(until: datetime | None = None) -> tuple[Record, ...]:
    return (Record("dpf", until),)


OWN = Tenant("own", ("q",), "DE", "DE", ("DE",), ("DE",), VOUCHED)


# --- plans -------------------------------------------------------------------------------------------------------


def cargo(*labels: str, name: str = "data", home: tuple[str, ...] = ()) -> Cargo:
    return Cargo(name, Labels(tuple(Inherited(label, (name,)) for label in sorted(labels))), home)


def made_of(name: str, *inputs: Artefact, law_: Law | None = None) -> Cargo:
    """What a run makes of some artefacts, by the engine's own derivation."""
    catalog = {one.name: one for one in (*inputs, Artefact(name, derived_from=tuple(i.name for i in inputs)))}
    declared = law_.bundle.declassifications if law_ is not None else ()
    return Cargo(name, labels_of(name, catalog, declared, NOW))


def job(*hops: Hop, **asked: object) -> Plan:
    return Plan(hops, queue="q", workload="team/job", tenant=OWN, products=(), **asked)  # type: ignore[arg-type]


def one(flow: Flow, destination: Place, *labels: str, source: Place | None = None, name: str = "data") -> Plan:
    """A plan of one hop."""
    return job(Hop(flow, cargo(*labels, name=name), destination, source))


def ruled(law_: Law, plan: Plan, now: datetime = NOW) -> Ruling:
    return judge_plan(law_, plan, now)


def reasons(ruling: Ruling) -> list[tuple[str, str, str]]:
    """(flow, code, rule) of everything that stands in the way."""
    return [(v.flow.value, v.because.code.value, v.because.rule) for v in ruling.against]
