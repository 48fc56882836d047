"""The second pinned pair of a fleet, and a Kueue whose feature gates a restart can change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.fleet import binaries, kueue
from tests.fleet.processes import FleetError


def test_unset_means_the_tested_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(binaries.FLEET_VARIABLE, raising=False)
    assert binaries.chosen_programs() is binaries.PROGRAMS


def test_oldest_changes_kubernetes_and_kueue_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.FLEET_VARIABLE, binaries.OLDEST)
    chosen = {program.name: program for program in binaries.chosen_programs()}
    tested = {program.name: program for program in binaries.PROGRAMS}
    assert set(chosen) == set(tested)
    assert {name for name in chosen if chosen[name] != tested[name]} == {"kubernetes", "kueue"}


def test_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.FLEET_VARIABLE, "newest")
    with pytest.raises(FleetError, match="newest"):
        binaries.chosen_programs()


@pytest.mark.parametrize(
    ("module", "package", "version"),
    [("kubernetes", "k8s.io/kubernetes", "v1.35.4"), ("kueue", "sigs.k8s.io/kueue", "v0.17.0")],
)
def test_the_oldest_pair_is_pinned(module: str, package: str, version: str) -> None:
    text = (binaries.OLDEST_FOLDER / module / "go.mod").read_text()
    assert re.search(rf"^\s*{re.escape(package)} {re.escape(version)}\b", text, re.MULTILINE)
    assert (binaries.OLDEST_FOLDER / module / "go.sum").stat().st_size > 0


def test_the_two_pairs_have_cache_entries_of_their_own() -> None:
    hashes = [binaries.recipe_hash(p) for p in (*binaries.PROGRAMS, *binaries.OLDEST_PROGRAMS)]
    assert len(set(hashes)) == len(binaries.PROGRAMS) + 2


def test_kubernetes_says_the_version_that_it_is_compiled_from() -> None:
    flags = binaries.versioned("v1.35.4")
    assert "gitVersion=v1.35.4" in flags
    assert "gitMinor=35" in flags


def test_a_release_without_the_clearing_policy_has_none_to_apply(tmp_path: Path) -> None:
    (tmp_path / "crd").mkdir()
    (tmp_path / "webhook").mkdir()
    (tmp_path / "webhook" / "manifests.yaml").write_text("")
    assert list(kueue.KueueData.load(tmp_path).admission_policy) == []


def test_gates_are_changed_beside_the_fleets_own_and_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "kueue.yaml"
    kueue.write_configuration(path, kueue.configuration(tmp_path, kueue.KueuePorts(1, 2)))
    before = path.read_text()
    kueue.with_gates(path, {"WorkloadRequestUseMergePatch": True})
    assert yaml.safe_load(path.read_text())["featureGates"] == {
        "VisibilityOnDemand": False,
        "WorkloadRequestUseMergePatch": True,
    }
    kueue.with_gates(path, {})
    assert path.read_text() == before
