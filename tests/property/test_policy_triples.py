"""Random rules, data and fleets through the production path, judged by an oracle that shares no code with the engine.

The million of it is bench `policy`; here are some thousand, from the same draws. A chooser that is blind to the law,
on the very same candidates, goes wrong many times: so the draws do meet the law.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from bench.policy import Tally, one_draw, tally
from bench.policy_oracle import forbidden
from bench.policy_world import TRIPLES, draw, snapshot
from dispatcher.core.decide import decide
from dispatcher.core.decision import Decision
from dispatcher.core.impact import Comparison
from dispatcher.core.legality import ruling_on
from dispatcher.core.memo import CandidateMemo
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs, replay
from dispatcher.core.work import Stage, Work
from dispatcher.core.workload import Request
from residency.bundle import bundle_of
from residency.rules import Rule
from residency.vocabulary import Effect, Mode
from tests.core_builders import FLAVOR, NOW
from tests.examples import share

DRAWS = share(60)


def test_no_triple_ends_in_a_forbidden_flow_on_any_path() -> None:
    """Dispatch, escalation, and a reload while the job waits."""
    found = tally(10_000_000, DRAWS)
    assert found.triples == DRAWS * TRIPLES
    assert (found.wrong, found.unseen, found.examples) == (0, 0, ())
    assert found.placed > found.triples // 10, "rules under which nothing may go would prove nothing"
    assert found.blind_wrong > found.blind // 4, "a choice without law must go wrong, or the draws meet no law"


def test_nothing_is_refused_that_nothing_forbids() -> None:
    """The engine may be stricter than the oracle only where a fact is unknown: in these draws both read the same."""
    assert one_draw(draw(7)).plus(Tally()).refused == 0


def test_the_oracle_can_fail() -> None:
    """An engine that went on by old rules after a reload would be found out."""
    wrong = 0
    for number in range(8):
        drawn = draw(number)
        for job, request in drawn.jobs:
            chosen = decide(request, snapshot(), drawn.policies[0], NOW).chosen
            wrong += chosen is not None and bool(forbidden(drawn.told[1], drawn.world, job, chosen))
    assert wrong > 0


# --- laws through decide() ----------------------------------------------------------------------------------------


def legal(decision: Decision) -> set[str]:
    return {c.cluster for c in decision.candidates if not any(r.reason.startswith("residency") for r in c.rejections)}


def with_rules(policy: Policy, *rules: Rule) -> Policy:
    return replace(policy, residency=bundle_of(replace(policy.residency, rules=rules)))


def stricter(policy: Policy) -> list[Policy]:
    """Without its exceptions, with its trial rules enforced, and with a permit less, where that can only narrow."""
    rules = policy.residency.rules
    found = [replace(policy, residency=bundle_of(replace(policy.residency, exceptions=())))]
    trial = [replace(r, mode=Mode.ENFORCE) if r.effect is not Effect.PERMIT else r for r in rules]
    found.append(with_rules(policy, *trial))
    found += [with_rules(policy, *(r for r in rules if r is not one)) for one in rules if _binds_nothing(one)]
    return found


def _binds_nothing(rule: Rule) -> bool:
    return rule.effect is Effect.PERMIT and not rule.obligations


@pytest.mark.parametrize("number", range(6))
def test_a_stricter_bundle_never_admits_more_through_decide(number: int) -> None:
    drawn = draw(number)
    for policy in stricter(drawn.policies[0]):
        for _, request in drawn.jobs[::4]:
            before = legal(decide(request, snapshot(), drawn.policies[0], NOW))
            assert legal(decide(request, snapshot(), policy, NOW)) <= before


@pytest.mark.parametrize("number", range(4))
def test_a_decision_under_random_law_is_its_replay_and_no_memo_shows(number: int) -> None:
    drawn, memo = draw(number), CandidateMemo()
    asked: list[tuple[Request, Policy]] = [(r, p) for _, r in drawn.jobs[::3] for p in drawn.policies]
    for request, policy in asked:
        decision = decide(request, snapshot(), policy, NOW, memo)
        assert replay(Inputs(request, snapshot(), policy, NOW)) == decision
        assert decision.law_digest == policy.residency.digest


@pytest.mark.parametrize("number", range(6))
def test_after_a_reload_only_the_new_rules_count(number: int) -> None:
    """What was remembered under the old bundle shows in nothing that is decided under the new one."""
    drawn, memo = draw(number), CandidateMemo()
    for _, request in drawn.jobs[::3]:
        first = decide(request, snapshot(), drawn.policies[0], NOW, memo)
        standing = (first.chosen,) if first.chosen is not None else ()
        waiting = replace(request, already_nominated=standing)
        assert decide(waiting, snapshot(), drawn.policies[1], NOW, memo) == decide(
            waiting, snapshot(), drawn.policies[1], NOW
        )


# --- previews -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
def test_a_preview_says_what_judging_everything_twice_says(number: int) -> None:
    """Labels that an edit does not touch are not judged again, work of one shape only once: no answer may show it."""
    drawn = draw(number)
    base, rules = drawn.policies[0], drawn.policies[0].residency.rules
    heads = [with_rules(base, *(r for r in rules if r is not one)) for one in rules] + [drawn.policies[1], base]
    for head in heads:
        comparison = Comparison(base, head, NOW)
        for _, request in drawn.jobs[::3]:
            change = comparison.change(Work(request, Stage.QUEUED))
            was, now = (_naive(request, policy) for policy in (base, head))
            assert {turn.cluster for turn in change.opened} == now - was if change else was == now
            assert {turn.cluster for turn in change.closed} == was - now if change else True


def _naive(request: Request, policy: Policy) -> set[str]:
    end = NOW + timedelta(hours=1)
    choice = (FLAVOR,)
    return {
        name for name, site in policy.clusters.items() if ruling_on(request, site, policy, NOW, choice, end).allowed
    }
