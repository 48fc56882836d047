"""Golden decisions replay to the same bytes. A change of what the core decides is a failing test that says what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dispatcher.core.version import CODE_VERSION
from dispatcher.store.documents import encode_record
from tests.replay.golden import FOLDER, SCENES, difference, read

FILES = sorted(FOLDER.glob("*.json"))
HOW = "if that is meant: python -m tests.replay.golden --write, and say in the commit why (docs/replay.md)"


def test_there_is_a_golden_for_every_scene() -> None:
    assert {scene.__name__.replace("_", "-") for scene in SCENES} <= {file.stem for file in FILES}
    assert len(FILES) >= len(SCENES) + 2


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_decision_replays_to_the_same_bytes(file: Path) -> None:
    told = difference(read(file))
    assert not told, f"{file.stem} is decided differently now; {HOW}\n{told}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_golden_file_is_canonical_and_of_this_version(file: Path) -> None:
    record = read(file)
    assert encode_record(record, indent=1) == file.read_bytes()
    assert record.decision.code_version == CODE_VERSION
    assert record.inputs.policy.loaded_from in ("", "config"), "no path of a machine belongs in a file"


def test_the_goldens_hold_every_outcome() -> None:
    assert {read(file).decision.outcome for file in FILES} == {"nominate", "add", "wait"}


def test_a_changed_price_is_told_by_its_place() -> None:
    """The check itself can fail, and then names the cluster and the term."""
    record = read(FOLDER / "the-cheaper-cluster-wins.json")
    prices = record.inputs.policy.prices
    dearer = {key: replace(p, usd_micro_per_hour=p.usd_micro_per_hour * 9) for key, p in prices.compute.items()}
    changed = replace(record.inputs, policy=replace(record.inputs.policy, prices=replace(prices, compute=dearer)))
    told = difference(replace(record, inputs=changed))
    assert "candidates[cloud].terms[run].amount_usd_micro: changed: recorded 24000000, now 216000000" in told


def test_a_golden_holds_no_secret_and_nothing_of_a_machine() -> None:
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        assert json.loads(text)["format"] == "entrepot.dev/record"
        for word in ("kubeconfig:", "BEGIN ", "token", "/home/", "/root/", "/work/", "/tmp/"):
            assert word not in text, f"{file.stem}: {word}"
