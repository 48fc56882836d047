"""What is wrong with the law, said as of every other file: place, value, rule, fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from dispatcher.config.blueprint import DATA, FLEET, QUEUES, Draft
from dispatcher.config.problems import Mark, Problem, did_you_mean, problem_at, warning_at
from dispatcher.config.residency.assemble import RESIDENCY, RuleFile
from dispatcher.core.products import product_of
from residency.bundle import Bundle
from residency.facts import FACTS, Shape
from residency.sets import Of
from residency.soundness import Fault, Flaw, faults
from residency.vocabulary import At

Said = tuple[str, str]
TOP_OF_RULES = At(RESIDENCY, 1, 1)


def check_law(draft: Draft, bundle: Bundle, now: datetime) -> None:
    """Add every fault of the bundle to the draft. Labels are those of data.yaml, as far as it can be read."""
    labels = draft.names(DATA, "labels")
    for fault in faults(bundle, labels, now):
        if fault.flaw is Flaw.LABEL and not draft.readable(DATA):
            continue
        draft.problems.append(_problem(fault, draft))
    for file in draft.rule_files:
        _products(draft, file)
        _scopes(draft, file)


def _problem(fault: Fault, draft: Draft) -> Problem:
    at = fault.at
    if fault.flaw is Flaw.LABEL_WITHOUT_RULE:
        mark = draft.mark(DATA, "labels", fault.subject, of_key=True)
        at = At(DATA, mark.line, mark.column)
    at = at if at.file else TOP_OF_RULES
    make = problem_at if fault.is_error else warning_at
    problem = make(at.file, Mark(at.line, at.column), fault.subject, *_SAID[fault.flaw](fault))
    return replace(problem, code=fault.flaw.value)


def _first(fault: Fault) -> str:
    return fault.known[0] if fault.known else ""


def _unknown(what: str) -> Callable[[Fault], Said]:
    return lambda fault: (f"not one of the {what}", did_you_mean(fault.subject, fault.known))


_SAID: Mapping[Flaw, Callable[[Fault], Said]] = {
    Flaw.NO_RULES: lambda f: (
        "no rules: that is not the same as rules that allow",
        "write residency/*.yaml with at least one rule",
    ),
    Flaw.FACT: _unknown("facts that rules may ask for"),
    Flaw.OPERATOR: lambda f: ("an operator that does not fit the fact", f"use {', '.join(f.known)}"),
    Flaw.SET: _unknown("sets of residency/"),
    Flaw.SET_OF_OTHERS: lambda f: (f"a set of {f.known[0]}, where one of {f.known[1]} is needed", "name another set"),
    Flaw.RING: lambda f: (f"a ring of sets: {' -> '.join(f'@{name}' for name in f.known)}", "remove one link of it"),
    Flaw.LABEL: _unknown("labels of data.yaml"),
    Flaw.PERMIT_EVERYTHING: lambda f: ("a permit for every label", "name the labels"),
    Flaw.EMPTY_GROUP: lambda f: (f"an empty list under '{_first(f)}'", "name at least one condition"),
    Flaw.NO_TIME: lambda f: ("ends before it begins", "correct from: or until:"),
    Flaw.RULE: _unknown("rules of residency/"),
    Flaw.SCOPE: lambda f: (
        "a scope of fewer than two parts",
        "narrow it: two of queues, workloads, data_sets and clusters",
    ),
    Flaw.SELF_APPROVED: lambda f: (f"approved by who asked for it ({_first(f)})", "have somebody else approve it"),
    Flaw.NOT_AN_APPROVER: lambda f: ("not one of the rule's approvers", did_you_mean(f.subject, f.known)),
    Flaw.TOO_LONG: lambda f: (f"longer than the {f.known[1]} days that rule '{f.known[0]}' allows", "shorten it"),
    Flaw.DECLASSIFIES_UNLABELLED: lambda f: ("takes 'unlabelled' off: nobody knows what it is", "label the data"),
    Flaw.EXCEPTION_WITHOUT_EFFECT: lambda f: (
        f"has no effect on rule '{_first(f)}', which is hard",
        "remove the rule from it",
    ),
    Flaw.EXPIRED: lambda f: ("has expired: it is kept and counts no more", "remove it when nobody asks for it"),
    Flaw.EXPIRES_SOON: lambda f: (f"expires on {_first(f)}", "renew it, or move what it covers"),
    Flaw.VERIFY: lambda f: (f"was to be verified by {_first(f)}", f"look it up again ({f.known[1]})"),
    Flaw.LABEL_WITHOUT_RULE: lambda f: ("no rule permits it anything: such data goes nowhere", "write a permit"),
    Flaw.HARD_SHADOW: lambda f: (f"a hard forbid that does not decide (mode {_first(f)})", "write mode: enforce"),
}


# --- names of other files ----------------------------------------------------------------------------------------


def _products(draft: Draft, file: RuleFile) -> None:
    """Every GPU product that rules and sets name must be one of the product table."""
    for name, one in file.model.sets.items():
        for index, member in enumerate(one.members):
            at = file.at("sets", name, "members", index)
            if one.of is Of.PRODUCTS and member.product is not None:
                _product(draft, at, member.product)
            kind = "product" if one.of is Of.COUNTRIES else "country"
            if getattr(member, kind) is not None:
                mark, what = Mark(at.line, at.column), f"a {kind} in a set of {one.of.value}"
                draft.problems.append(problem_at(file.name, mark, getattr(member, kind), what, "correct of:"))
    for name, rule in file.model.rules.items():
        when: Any = rule.when
        entries = [] if when is None else [when, *(when.any or ()), *(when.all or ())]
        for entry in entries:
            for fact in (fact.name for fact in FACTS.values() if fact.shape is Shape.PRODUCTS):
                test = getattr(entry, fact)
                for operator in test.model_fields_set if test is not None else ():
                    for value in getattr(test, operator):
                        if not value.startswith("@"):
                            _product(draft, file.at("rules", name, "when"), value)


def _product(draft: Draft, at: At, value: str) -> None:
    if product_of(value, draft.products) is None:
        fix = did_you_mean(value, tuple(str(name) for name in draft.products))
        draft.problems.append(problem_at(at.file, Mark(at.line, at.column), value, "unknown GPU product", fix))


def _scopes(draft: Draft, file: RuleFile) -> None:
    """Scopes and tenants name things that are there."""
    for name, entry in file.model.exceptions.items():
        at = ("exceptions", name, "scope")
        _names(draft, file, (*at, "queues"), entry.scope.queues, (QUEUES, ("queues",)))
        if not draft.catalog_unread:
            _names(draft, file, (*at, "data_sets"), entry.scope.data_sets, (DATA, ("data_sets",)))
        _names(draft, file, (*at, "clusters"), entry.scope.clusters, (FLEET, ("clusters",)), (DATA, ("stores",)))
    for name, tenant in file.model.tenants.items():
        _names(draft, file, ("tenants", name, "queues"), tenant.queues, (QUEUES, ("queues",)))


def _names(
    draft: Draft, file: RuleFile, path: tuple[str, ...], values: tuple[str, ...], *targets: tuple[str, tuple[str, ...]]
) -> None:
    if not all(draft.readable(target) for target, _ in targets):
        return
    known = tuple(sorted({name for target, keys in targets for name in draft.names(target, *keys)}))
    for index, value in enumerate(values):
        if value not in known:
            at = file.at(*path, index)
            what = f"not one of the {' or '.join(f'{keys[0]} of {target}' for target, keys in targets)}"
            draft.problems.append(
                problem_at(
                    file.name, Mark(at.line, at.column), value, what.replace("_", " "), did_you_mean(value, known)
                )
            )
