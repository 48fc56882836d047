"""A claim is a name, and what is behind it differs from cluster to cluster (FR-SCO-17)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.claims import reads_of
from dispatcher.core.decision import Decision, Outcome, Reason
from dispatcher.core.explain import sentence
from dispatcher.core.ids import ClusterName, DataSetName
from dispatcher.core.policy import Claim, Policy
from tests.core_builders import data, decided, on, policy, reasons, request, uses, worker

DEMO = "team/demo"
Held = dict[str, str | None]


def fleet_policy(held: Held | None, *, allowed: bool = False) -> Policy:
    found = policy(data_sets=[data("d1", clusters=["onprem"]), data("d2", clusters=["cloud"])])
    claims = {}
    if held is not None:
        holds = {ClusterName(c): DataSetName(d) if d else None for c, d in held.items()}
        claims = {DEMO: Claim(DEMO, holds, "data.yaml:9:3")}
    return replace(found, claims=claims, unbound_claims_allowed=allowed)


def decision(held: Held | None, *named: str, allowed: bool = False) -> Decision:
    rules = fleet_policy(held, allowed=allowed)
    said = reads_of([DEMO], uses(*named), rules)
    asked = request("job", claims=(DEMO,), data=said)
    return decided(asked, worker("onprem"), worker("cloud"), rules=rules)


def test_fr_sco_17_a_job_goes_only_where_the_claim_holds_its_data() -> None:
    """pvc demo on onprem (d1) and on cloud (d2); the job needs d1: [onprem]."""
    found = decision({"onprem": "d1", "cloud": "d2"}, "d1")
    assert found.chosen == "onprem"
    assert Reason.CLAIM_ELSEWHERE in reasons(found, "cloud")
    assert "holds d2 there and not d1 (data.yaml:9:3" in sentence(found)


@pytest.mark.parametrize(
    ("held", "named", "onprem", "cloud"),
    [
        pytest.param({"onprem": "d1"}, (), None, Reason.CLAIM_ELSEWHERE, id="only where somebody says that it is"),
        pytest.param({"onprem": None, "cloud": None}, (), None, None, id="what is no data set may be alike everywhere"),
        pytest.param({"cloud": None}, (), Reason.CLAIM_ELSEWHERE, None, id="or in one place"),
        pytest.param(
            {"onprem": "d1", "cloud": "d2"},
            (),
            Reason.CLAIM_UNBOUND,
            Reason.CLAIM_UNBOUND,
            id="which of two is meant, the owner must say",
        ),
        pytest.param(None, (), Reason.CLAIM_UNBOUND, Reason.CLAIM_UNBOUND, id="of an unbound claim nothing is known"),
        pytest.param(None, ("d1",), Reason.CLAIM_UNBOUND, Reason.CLAIM_UNBOUND, id="whatever the job names besides"),
    ],
)
def test_where_a_claim_may_be_mounted(
    held: Held | None, named: tuple[str, ...], onprem: Reason | None, cloud: Reason | None
) -> None:
    found = decision(held, *named)
    for cluster, expected in (("onprem", onprem), ("cloud", cloud)):
        about = [r for r in reasons(found, cluster) if r in (Reason.CLAIM_UNBOUND, Reason.CLAIM_ELSEWHERE)]
        assert about == ([expected] if expected is not None else [])


def test_an_unbound_claim_holds_the_job_unless_the_plan_allows_it() -> None:
    held = decision(None)
    assert held.outcome is Outcome.WAIT
    assert "nobody says what that holds where" in sentence(held)
    assert decision(None, allowed=True).outcome is Outcome.NOMINATE


def test_a_bound_claim_is_a_read() -> None:
    """So that its labels are judged and its way is priced as if the job had named it."""
    rules = fleet_policy({"onprem": "d1"})
    assert reads_of([DEMO], (), rules) == uses("d1")
    assert reads_of([DEMO], uses(("d1", 3)), rules) == uses(("d1", 3)), "named with its reads, it is not read once more"
    assert reads_of([DEMO], uses("d2"), rules) == uses("d2", "d1")
    assert reads_of([DEMO], (), fleet_policy(None)) == ()
    assert on(decision({"onprem": "d1"}), "onprem").total_usd_micro is not None


def test_a_data_set_that_nobody_knows_any_more_is_no_read() -> None:
    """Its catalog could not be read yet: what it is called holds no job up twice, and starts none."""
    rules = replace(fleet_policy({"onprem": "gone"}), data_sets={})
    assert reads_of([DEMO], (), rules) == ()
