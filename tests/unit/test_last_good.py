"""The bundle that ruled last, over a restart: kept with its signature, judged again like any other, and told."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from connectors.embedded import ManualClock
from dispatcher.app.rules import WatchedFolder, known_of
from dispatcher.app.serve import BlueprintInvalid, ServeOptions, load_or_fall_back, policy_of
from dispatcher.config import load_blueprint
from dispatcher.config.files import read_folder
from dispatcher.config.residency.kept import last_good, packed, unpacked
from dispatcher.config.residency.trust import Known, TrustGate, TrustSettings
from dispatcher.core.audit import bundle_entry
from dispatcher.core.policy import Policy
from dispatcher.core.seal import Trust
from dispatcher.store import open_store
from dispatcher.store.audit import BundleRecord
from tests.builders import START
from tests.loops.bench import CONFIG
from tests.unit.test_seals import KEY, OTHER, seal_folder

BROKEN = "clusters: {"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIG, tmp_path / "blueprint"))


@pytest.fixture
def trust(tmp_path: Path) -> TrustSettings:
    (tmp_path / "trusted.pub").write_text(KEY.public().text())
    return TrustSettings(tmp_path / "trusted.pub")


def starting(folder: Path, trust: TrustSettings | None = None, at_hours: int = 0) -> WatchedFolder:
    """A daemon's source on the folder as it is."""
    now = START + timedelta(hours=at_hours)
    return WatchedFolder(folder, ManualClock(now), load_blueprint(folder, now), TrustGate(trust or TrustSettings()))


def kept_of(folder: Path) -> bytes:
    return packed(read_folder(folder))


# --- the bytes ---------------------------------------------------------------------------------------------------


def test_what_is_kept_comes_back_as_the_same_blueprint_with_what_vouches_for_it(folder: Path) -> None:
    seal_folder(folder, 3, START)
    content = read_folder(folder)
    assert len(content.seal) == 2
    back = unpacked(packed(content))
    assert back is not None
    assert (back.files, back.seal) == (content.files, content.seal)
    assert packed(back) == packed(content)
    now, again = load_blueprint(folder, START), last_good(packed(content), folder, START)
    assert again is not None
    assert again.policy is not None
    assert now.policy is not None
    assert (again.policy.digest, again.sealed) == (now.policy.digest, now.sealed)
    assert "last good" in again.policy.loaded_from, "nobody takes it for the folder"


@pytest.mark.parametrize(
    "kept",
    [
        b"",
        b"not compressed",
        zlib.compress(b"not json"),
        zlib.compress(b"[]"),
        zlib.compress(json.dumps({"form": 2, "files": [], "seal": []}).encode()),
        zlib.compress(json.dumps({"form": 1, "files": [["fleet.yaml", "%"]], "seal": []}).encode()),
        zlib.compress(json.dumps({"form": 1, "files": [], "seal": []}).encode()),
    ],
    ids=["nothing", "noise", "no JSON", "another JSON", "a later form", "no base64", "no files"],
)
def test_what_cannot_be_used_any_more_is_none(folder: Path, kept: bytes) -> None:
    assert last_good(kept, folder, START) is None


# --- what a start rules by ---------------------------------------------------------------------------------------


def an_edit_after_the_signature(folder: Path) -> None:
    (folder / "data.yaml").write_text((folder / "data.yaml").read_text() + "# an edit\n")


def an_older_serial(folder: Path) -> None:
    seal_folder(folder, 2, START)


def no_signature(folder: Path) -> None:
    (folder / "residency/manifest.json.minisig").unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (an_edit_after_the_signature, "signed for other files"),
        (an_older_serial, "older than serial 3"),
        (no_signature, "no signature"),
    ],
    ids=["an edit after the signature", "an older serial", "no signature"],
)
async def test_a_start_on_files_that_must_not_rule_goes_on_with_the_last_good_ones_and_says_so(
    folder: Path, trust: TrustSettings, spoil: Callable[[Path], None], says: str
) -> None:
    seal_folder(folder, 3, START)
    kept, before = kept_of(folder), starting(folder, trust)
    ruled = before.begin(policy_of(before.first), Known())
    spoil(folder)
    source = starting(folder, trust)
    begun = source.begin(policy_of(source.first), Known(serial=3, tree=ruled.seal.tree), kept)
    assert (begun.digest, begun.seal.trust, begun.seal.serial) == (ruled.digest, Trust.SIGNED, 3)
    told = await source.poll()
    assert isinstance(told, tuple)
    assert says in told[0]
    assert source.files_of(begun.seal.tree) == kept, "and it stays kept"
    seal_folder(folder, 4, START)
    mended = await source.poll()
    assert isinstance(mended, Policy)
    assert mended.seal.serial == 4


@pytest.mark.parametrize(
    ("known", "at_hours", "trusts"),
    [(Known(), 0, False), (Known(serial=9, tree="t"), 0, True), (Known(), 9, True)],
    ids=["its key is trusted no more", "a later one has ruled since", "it is over"],
)
def test_what_was_kept_is_judged_like_any_other(
    folder: Path, tmp_path: Path, trust: TrustSettings, known: Known, at_hours: int, trusts: bool
) -> None:
    seal_folder(folder, 3, START, valid_until=START + timedelta(hours=8))
    kept = kept_of(folder)
    no_signature(folder)
    if not trusts:
        (tmp_path / "trusted.pub").write_text(OTHER.public().text())
    source = starting(folder, trust, at_hours)
    begun = source.begin(policy_of(source.first), known, kept)
    assert (begun.seal.trust, begun.residency.rules) == (Trust.MISSING, ())


async def test_what_was_only_signed_anew_is_kept_with_its_new_signature(folder: Path, trust: TrustSettings) -> None:
    seal_folder(folder, 3, START)
    source = starting(folder, trust)
    begun = source.begin(policy_of(source.first), Known())
    seal_folder(folder, 4, START)
    again = await source.poll()
    assert isinstance(again, Policy)
    assert again.seal.tree == begun.seal.tree
    assert source.files_of(again.seal.tree) == kept_of(folder)
    no_signature(folder)
    later = starting(folder, trust)
    known = Known(serial=4, tree=again.seal.tree)
    assert later.begin(policy_of(later.first), known, source.files_of(again.seal.tree)).seal.serial == 4


# --- the store and the process -----------------------------------------------------------------------------------


async def test_the_store_keeps_the_files_of_the_bundle_that_ruled_last(target: str, folder: Path) -> None:
    first = policy_of(load_blueprint(folder, START))
    store = await open_store(target)
    assert (await store.audit_log.bundle_record()).kept is None
    for tree, files, kept in (
        ("one", b"1", b"1"),
        ("one", b"the same, signed anew", b"the same, signed anew"),
        ("two", None, b"the same, signed anew"),
        ("three", b"3", b"3"),
        ("one", b"1", b"1"),
    ):
        await store.audit_log.ruled(bundle_entry(first, START), tree, START, files)
        assert (await store.audit_log.bundle_record()).kept == kept, (tree, files)
    await store.close()


async def test_a_start_on_broken_files_takes_what_the_store_has_kept(folder: Path, tmp_path: Path) -> None:
    options, clock = ServeOptions(folder, tmp_path / "entrepot.db"), ManualClock(START)
    good = await load_or_fall_back(options, clock)
    store = await open_store(options.store)
    await store.audit_log.ruled(bundle_entry(policy_of(good), START), good.sealed.tree, START, kept_of(folder))
    await store.close()
    (folder / "fleet.yaml").write_text(BROKEN)
    found = await load_or_fall_back(options, clock)
    assert policy_of(found).digest == policy_of(good).digest
    source = WatchedFolder(folder, clock, found)
    begun = source.begin(policy_of(found), known_of(await record_of(options)))
    assert begun.seal.confirmed_at == START, "it is as old as it was"
    told = await source.poll()
    assert isinstance(told, tuple)
    assert "fleet.yaml:1" in told[0]


async def record_of(options: ServeOptions) -> BundleRecord:
    store = await open_store(options.store)
    try:
        return await store.audit_log.bundle_record()
    finally:
        await store.close()


async def test_a_first_start_on_broken_files_is_refused_and_makes_no_store(folder: Path, tmp_path: Path) -> None:
    (folder / "fleet.yaml").write_text(BROKEN)
    options = ServeOptions(folder, tmp_path / "entrepot.db")
    with pytest.raises(BlueprintInvalid, match=r"fleet\.yaml:1"):
        await load_or_fall_back(options, ManualClock(START))
    assert not (tmp_path / "entrepot.db").exists()


async def test_a_store_that_has_kept_nothing_is_no_help(folder: Path, tmp_path: Path) -> None:
    options = ServeOptions(folder, tmp_path / "entrepot.db")
    await (await open_store(options.store)).close()
    (folder / "fleet.yaml").write_text(BROKEN)
    with pytest.raises(BlueprintInvalid):
        await load_or_fall_back(options, ManualClock(START))
