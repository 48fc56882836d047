"""The first simple residency rule: the countries in which data with a label may be processed.

A pure leaf that imports nothing of ours, so that an auditor can read it alone. Every label of the data must allow the
country (AND across labels: the permissive label of a set with several never wins); what is not known is
`INDETERMINATE`, which denies as well but says that a fact, not the law, stands in the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

UNLABELLED = "unlabelled"
"""The label of data that nobody has classified, and of a job that names no data at all."""


class Answer(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    INDETERMINATE = "indeterminate"


class Gap(StrEnum):
    """Which fact would decide an indeterminate verdict."""

    COUNTRY = "country"
    ATTESTATION = "attestation"
    RULE = "rule"
    ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Rule:
    """Data with `label` may be processed in `allowed` countries; None means anywhere. `line` is where it is written."""

    label: str
    allowed: tuple[str, ...] | None
    line: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """Where processing would take place. `attested` is False where nobody vouches for the country (any more)."""

    country: str | None
    attested: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, the label and line that decided it, what would be allowed, and the missing fact if there is one."""

    answer: Answer
    label: str = ""
    line: str = ""
    allowed: tuple[str, ...] = ()
    country: str | None = None
    gap: Gap | None = None


def judge(labels: tuple[str, ...], home: tuple[str, ...], site: Site, rules: Mapping[str, Rule]) -> tuple[Verdict, ...]:
    """One verdict per label, in label order; no labels at all are the label `unlabelled`.

    A label without a rule is indeterminate: nobody has said that such data may go anywhere. Only unlabelled data
    without a rule may stay in the countries where it already lies (`home`): going wider is an opt-in (FR-POL-01).
    """
    return tuple(_by_label(label, home, rules, site) for label in sorted(set(labels)) or (UNLABELLED,))


def _by_label(label: str, home: tuple[str, ...], rules: Mapping[str, Rule], site: Site) -> Verdict:
    rule = rules.get(label)
    if rule is not None:
        return _by_countries(rule, site)
    if label == UNLABELLED:
        stays = Rule(label, tuple(sorted(set(home))))
        return _by_countries(stays, site) if home else _unknown(Gap.ORIGIN, site, label)
    return _unknown(Gap.RULE, site, label)


def _by_countries(rule: Rule, site: Site) -> Verdict:
    if rule.allowed is None:
        return Verdict(Answer.ALLOW, rule.label, rule.line, (), site.country)
    answer, gap = Answer.DENY, None
    if site.country is None:
        answer, gap = Answer.INDETERMINATE, Gap.COUNTRY
    elif not site.attested:
        answer, gap = Answer.INDETERMINATE, Gap.ATTESTATION
    elif site.country in rule.allowed:
        answer = Answer.ALLOW
    return Verdict(answer, rule.label, rule.line, rule.allowed, site.country, gap)


def _unknown(gap: Gap, site: Site, label: str) -> Verdict:
    return Verdict(Answer.INDETERMINATE, label, "", (), site.country, gap)
