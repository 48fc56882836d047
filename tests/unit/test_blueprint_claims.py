"""What data.yaml says of persistent volume claims, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.core.policy import Claim
from tests.unit.blueprint_files import SMALL, load, texts

BOUND = """\
claims:
  autonomy/roads-volume:
    data_sets: {cloud: roads}
  autonomy/scratch:
    clusters: [home, cloud]
"""
LINE = SMALL["data.yaml"].count("\n") + 1
"""Where what is added to data.yaml begins."""


def with_claims(text: str) -> dict[str, str | bytes]:
    return {**SMALL, "data.yaml": SMALL["data.yaml"] + text}


def test_claims_say_what_they_hold_where(tmp_path: Path) -> None:
    result = load(tmp_path, with_claims(BOUND))
    assert (texts(result), result.warnings) == ([], ())
    assert result.policy is not None
    assert dict(result.policy.claims) == {
        "autonomy/roads-volume": Claim("autonomy/roads-volume", {"cloud": "roads"}, f"data.yaml:{LINE + 1}:3"),  # type: ignore[dict-item]
        "autonomy/scratch": Claim("autonomy/scratch", {"cloud": None, "home": None}, f"data.yaml:{LINE + 3}:3"),  # type: ignore[dict-item]
    }
    assert not result.policy.unbound_claims_allowed, "of a claim that is not there nothing is known"


def test_a_plan_may_allow_claims_of_which_it_says_nothing(tmp_path: Path) -> None:
    result = load(tmp_path, with_claims("unbound_claims: allow\n"))
    assert result.policy is not None
    assert result.policy.unbound_claims_allowed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("{cloud: roads}", "{clod: roads}", "'clod': not one of the clusters", id="an unknown cluster"),
        pytest.param("{cloud: roads}", "{cloud: roods}", "'roods': not one of the data sets", id="an unknown data set"),
        pytest.param(
            "{cloud: roads}",
            "{home: roads}",
            "'roads': data set roads does not say that it lies on home; add home to its replicas.clusters",
            id="a data set that does not say that it is there",
        ),
        pytest.param("[home, cloud]", "[home, clout]", "'clout': not one of the clusters", id="an unknown place"),
        pytest.param(
            "    clusters: [home",
            "    data_sets: {cloud: roads}\n    clusters: [home",
            "exactly one of 'data_sets' and 'clusters' is needed",
            id="both",
        ),
        pytest.param("autonomy/scratch", "scratch", "not NAMESPACE/NAME", id="a name without a namespace"),
    ],
)
def test_a_mistake_in_a_claim_is_named(old: str, new: str, said: str, tmp_path: Path) -> None:
    result = load(tmp_path, with_claims(BOUND.replace(old, new)))
    assert result.policy is None
    assert any(said in text and text.startswith("data.yaml:") for text in texts(result)), texts(result)
