"""The examples of docs/add-a-term.md work as they stand there, on the code as it stands here."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.core import decide as deciding
from dispatcher.core import decision as records
from dispatcher.core import filters, terms
from dispatcher.core.decision import Decision, Outcome, Reason, TermKind
from dispatcher.core.workload import WorkloadClass
from tests.core_builders import decided, on, policy, request, site, worker

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "add-a-term.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", DOC, re.DOTALL)
CORE = "\n".join(
    (ROOT / "dispatcher" / "core" / name).read_text(encoding="utf-8")
    for name in ("decision.py", "terms/__init__.py", "filters.py", "explain.py")
)


def widened(enum: type[StrEnum], name: str, value: str) -> Any:
    """The enum as the document's diff leaves it: the members that there are, and the new one."""
    return SimpleNamespace(**dict(enum.__members__), **{name: value})


def example(marker: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (code,) = [body for kind, body in BLOCKS if kind == "python" and body.startswith(f"# {marker}\n")]
    monkeypatch.setattr(records, "TermKind", widened(TermKind, "LICENCE", "licence"))
    monkeypatch.setattr(records, "Reason", widened(Reason, "FAR_FROM_USERS", "far-from-users"))
    space: dict[str, Any] = {}
    exec(compile(code, "docs/add-a-term.md", "exec"), space)
    return space


def simulated(*countries: str | None, workload_class: WorkloadClass = WorkloadClass.SIMULATION) -> Decision:
    sites = [site(name, country) for name, country in zip(("onprem", "cloud"), countries, strict=True)]
    return decided(request(workload_class=workload_class), worker(), worker("cloud"), rules=policy(sites))


def test_the_term_of_the_document_is_summed_and_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    before = on(simulated("DE", "FI"), "cloud").total_usd_micro or 0
    monkeypatch.setattr(terms, "TERMS", (*terms.TERMS, example("term", monkeypatch)["licence"]))
    after = simulated("DE", "FI")
    assert after.chosen == "onprem"
    assert on(after, "cloud").total_usd_micro == before + 8 * 650_000
    trained = simulated("DE", "FI", workload_class=WorkloadClass.TRAINING)
    assert on(trained, "cloud").total_usd_micro == before, "another class takes no seat"


def test_the_term_of_the_document_rejects_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "TERMS", (*terms.TERMS, example("term", monkeypatch)["licence"]))
    decision = simulated("DE", "FR")
    assert decision.chosen == "onprem"
    assert [r.reason for r in on(decision, "cloud").rejections] == [Reason.PRICE_UNKNOWN]


@pytest.mark.parametrize(
    ("workload_class", "country", "outcome"),
    [
        (WorkloadClass.INTERACTIVE, "FI", Outcome.NOMINATE),
        (WorkloadClass.INTERACTIVE, "US", Outcome.WAIT),
        (WorkloadClass.INTERACTIVE, None, Outcome.WAIT),
        (WorkloadClass.TRAINING, "US", Outcome.NOMINATE),
    ],
)
def test_the_filter_of_the_document_rejects_who_is_far(
    workload_class: WorkloadClass, country: str | None, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    near_users = example("filter", monkeypatch)["near_users"]
    monkeypatch.setattr(filters, "FILTERS", (*filters.FILTERS, near_users))
    rules = policy(sites=[site("cloud", country)])
    decision = decided(request(workload_class=workload_class), worker("cloud"), rules=rules)
    assert decision.outcome is outcome
    told = [r.reason for r in on(decision, "cloud").rejections]
    assert told == ([] if outcome is Outcome.NOMINATE else ["far-from-users"])


def test_the_diffs_start_from_the_code_as_it_is() -> None:
    old = [line[1:] for kind, body in BLOCKS if kind == "diff" for line in body.splitlines() if line[0] in " -"]
    assert len(old) >= 8
    assert [line for line in old if f"{line}\n" not in CORE] == []


def test_every_file_that_the_document_names_is_there() -> None:
    names = re.findall(r"`((?:dispatcher|tests)/[\w/.]+\.py)`", DOC)
    assert len(names) >= 5
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert deciding.CODE_VERSION
