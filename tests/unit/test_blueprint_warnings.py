"""What a blueprint may say and probably does not mean."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dispatcher.config import load_blueprint
from tests.unit.blueprint_files import NOW, SMALL, R, edited, load, texts, write

F, Q, D, P = "fleet.yaml", "queues.yaml", "data.yaml", "prices.yaml"
ANY = """\
      any:
        product: h100-80gb
        labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3, entrepot.dev/rack: r1}
        purchase: on-demand
        nodes: {count: 0, capacity: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}}
    node_pools:
"""
CASES = [
    pytest.param(
        (F, "    node_pools:\n", ANY),
        "fleet.yaml:38:7: warning: 'any': selects the same nodes as 'h100': capacity would be counted twice; "
        "add a label to tell them",
        id="FR-SCO-11: two flavors over the same nodes",
    ),
    pytest.param(
        (
            F,
            "labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n        purchase: on-demand",
            "labels: {nvidia.com/gpu.product: H100-XYZ}\n        purchase: on-demand",
        ),
        "fleet.yaml:35:18: warning: 'H100-XYZ': a product label that the table does not know; "
        "add the spelling to fleet.yaml's products",
        id="FR-SCO-04: a node label that is no spelling of any product",
    ),
    pytest.param(
        (F, "      country: FI\n", ""),
        "fleet.yaml:28:5: warning: 'cloud': the country is not known: every rule that asks for it denies; "
        "add country: and who attests it",
        id="a site whose country nobody states",
    ),
    pytest.param(
        (F, "until: 2027-06-30}\n    credentials: {file", "until: 2026-06-30}\n    credentials: {file"),
        "fleet.yaml:30:32: warning: '2026-06-30': the site facts are no longer attested; have them attested anew",
        id="site facts that have expired",
    ),
    pytest.param(
        (F, "{flavor: h100, max_nodes: 2}", "{flavor: h100, max_nodes: 2, purchase: spot}"),
        "fleet.yaml:39:7: warning: 'h100-burst': no price for h100-80gb of northgrid in fi-north, spot: "
        "unknown, never 0; add a row to prices.yaml",
        id="FR-BUD-06: a node pool without a price",
    ),
    pytest.param(
        (P, "product: cpu, purchase: internal", "product: cpu, purchase: spot"),
        "fleet.yaml:16:7: warning: 'cpu': no price for cpu of onprem in de-home, internal: unknown, never 0; "
        "add a row to prices.yaml",
        id="FR-BUD-06: a flavor without a price",
    ),
    pytest.param(
        (Q, "gpus: 12, borrow", "gpus: 13, borrow"),
        "queues.yaml:31:9: warning: 'h100': the queues up to here are promised 17 of 16 (nvidia.com/gpu); "
        "lower a share, or declare more nodes",
        id="more quota than nodes",
    ),
    pytest.param(
        (Q, "h100: {gpus: 4, lend: 2}", "h100: {gpus: 0, borrow: 0}"),
        "queues.yaml:24:3: warning: 'curation': has no share anywhere: nothing in it can ever run; "
        "give it a share of a flavor",
        id="a queue in which nothing can run",
    ),
    pytest.param(
        (P, "  - {from_region: fi-north, to_region: de-home, usd_per_gb: 0.02, source: rate, dated: 2026-11-02}\n", ""),
        "prices.yaml:13:1: warning: 'fi-north': no egress price to de-home: moving data there has an unknown price; "
        "add a row, or to_region: '*'",
        id="FR-CFG-02: a route without a price",
    ),
    pytest.param(
        (P, "    dated: 2026-11-02", "    dated: 2025-01-02"),
        "prices.yaml:12:5: warning: '2025-01-02': older than max_age_days (400): not used; look the price up again",
        id="a price that is too old",
    ),
    pytest.param(
        (P, "    dated: 2026-11-02", "    dated: 2027-01-02"),
        "prices.yaml:12:5: warning: '2027-01-02': dated in the future; write the day on which it was looked up",
        id="a price of tomorrow",
    ),
    pytest.param(
        (D, "    size: 12TB\n", ""),
        "data.yaml:10:3: warning: 'roads': the size is not known: moving it has an unknown price; add size:",
        id="a data set of unknown size",
    ),
    pytest.param(
        (D, "{stores: [lake], clusters: [cloud]}", "{}"),
        "data.yaml:10:3: warning: 'roads': lies nowhere: it cannot be read; add a store or cluster to replicas",
        id="a data set that lies nowhere",
    ),
    pytest.param(
        (R, "members: [DE, FI, FR]", "members: [FI, FR]"),
        "data.yaml:17:5: warning: 'crops': lies in lake (DE), where the rules of 'personal' do not let it lie; "
        "move it, or correct the label",
        id="data that lies where its label does not allow it",
    ),
    pytest.param(
        (D, "  unlabelled: {}\n", "  secret: {}\n"),
        "data.yaml:6:3: warning: 'secret': no rule permits it anything: such data goes nowhere; write a permit",
        id="a label that no rule permits anything",
    ),
]


@pytest.mark.parametrize(("edit", "expected"), CASES)
def test_a_doubt_is_raised_and_the_blueprint_is_taken(
    edit: tuple[str, str, str], expected: str, tmp_path: Path
) -> None:
    result = load(tmp_path, edited(*edit))
    assert texts(result) == []
    assert result.policy is not None
    assert [warning.text() for warning in result.warnings] == [expected]


def test_data_without_a_label_is_pointed_out_wherever_it_is_used(tmp_path: Path) -> None:
    result = load(tmp_path, edited(D, "    labels: [public]\n", ""))
    assert [(w.line, w.value, w.rule) for w in result.warnings] == [
        (10, "'roads'", "carries no label: the rule of 'unlabelled' holds"),
        (12, "'roads'", "lies in cloud (FI), where the rules of 'unlabelled' do not let it lie"),
        (13, "'crops'", "is made from data without a label: the rule of 'unlabelled' holds"),
    ]


def test_the_same_files_are_judged_by_the_day_they_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path, dict(SMALL))
    later = datetime(2028, 1, 1, tzinfo=NOW.tzinfo)
    rules = sorted({warning.rule for warning in load_blueprint(folder, later).warnings})
    assert rules == [
        "lies in lake (DE), where facts that the rules of 'personal' ask for are not known",
        "no cluster satisfies its rules: such data can run nowhere",
        "older than max_age_days (400): not used",
        "the site facts are no longer attested",
    ]
