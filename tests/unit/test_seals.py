"""Signed bundles: what a daemon with trusted keys takes, what it refuses, and what it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatcher.app.rules import WatchedFolder, without_rules
from dispatcher.config import load_blueprint
from dispatcher.config.files import read_folder
from dispatcher.config.residency.manifest import MANIFEST, SIGNATURE, Sealed, tree_digest, write_manifest
from dispatcher.config.residency.signing import (
    SignatureError,
    make_key,
    parse_public_keys,
    parse_secret_key,
    read_trusted,
    sign,
    verify,
)
from dispatcher.config.residency.trust import Known, TrustGate, TrustSettings
from dispatcher.core.policy import Policy
from dispatcher.core.seal import Seal, Trouble, Trust, standing
from tests.builders import START
from tests.loops.bench import CONFIG

KEY = make_key(b"k" * 32, b"12345678")
OTHER = make_key(b"o" * 32, b"87654321")
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


# --- signatures --------------------------------------------------------------------------------------------------


def test_a_signature_of_the_reference_tool_is_good() -> None:
    """The example of the format's own documentation: written by minisign, not by us."""
    key = parse_public_keys("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3")
    text = (
        "untrusted comment: signature from minisign secret key\n"
        "RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\n"
        "trusted comment: timestamp:1633700835\tfile:test\tprehashed\n"
        "wLMDjy9FLAuxZ3q4NlEvkgtyhrr0gtTu6KC4KBJdITbbOeAi1zBIYo0v4iTgt8jJpIidRJnp94ABQkJAgAooBQ==\n"
    )
    assert verify(b"test", text, key).id == "E7620F1842B4E81F"
    with pytest.raises(SignatureError, match="not of this content"):
        verify(b"tesu", text, key)


def test_keys_survive_their_files_and_a_secret_one_is_never_shown() -> None:
    assert parse_secret_key(KEY.text()) == KEY
    assert parse_public_keys(KEY.public().text()) == (KEY.public(),)
    assert KEY.seed.hex() not in repr(KEY)
    assert "k" * 32 not in repr(KEY)


SIGNED = sign(b"content", KEY, "comment")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a signature"),
        ("hello", "not a signature"),
        (SIGNED.replace("trusted comment: comment", "trusted comment: other"), "trusted comment"),
        (SIGNED.replace("RU", "RV", 1), "not known"),
        (sign(b"other", KEY, "comment"), "not of this content"),
        (sign(b"content", OTHER, "comment"), "not trusted"),
        ("\n".join(SIGNED.split("\n")[:3]), "not a signature"),
    ],
    ids=[
        "nothing",
        "a word",
        "another trusted comment",
        "an unknown algorithm",
        "another content",
        "another key",
        "half of one",
    ],
)
def test_a_bad_signature_is_refused_and_says_why(text: str, says: str) -> None:
    with pytest.raises(SignatureError, match=says) as refused:
        verify(b"content", text, [KEY.public()])
    assert refused.value.fix


@pytest.mark.parametrize(
    "fill",
    [
        lambda place: None,
        lambda place: (place / "a.pub").write_text("no key"),
        lambda place: (place / "a.pub").write_bytes(b"x" * 70_000),
        lambda place: shutil.rmtree(place),
    ],
    ids=["an empty folder", "a file that is no key", "a file far too large", "no folder"],
)
def test_keys_that_cannot_be_read_trust_nobody(tmp_path: Path, fill: Callable[[Path], object]) -> None:
    place = tmp_path / "keys"
    place.mkdir()
    fill(place)
    with pytest.raises(SignatureError):
        read_trusted(place)


# --- the gate ----------------------------------------------------------------------------------------------------


FILES = (("fleet.yaml", b"a"), ("residency/rules.yaml", b"b"))
TREE = tree_digest(FILES)


def bundle(signer: object = KEY, **said: object) -> Sealed:
    plain: dict[str, object] = {
        "schema_version": 1,
        "serial": 5,
        "revision": "abc",
        "tree": TREE,
        "author": "ann",
        "approvers": ["bob"],
        "valid_from": NOW,
        **said,
    }
    content = write_manifest(plain)
    return Sealed(TREE, content, sign(content, signer, "c").encode() if signer is not None else None)  # type: ignore[arg-type]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "trusted.pub").write_text(KEY.public().text())
    return tmp_path / "trusted.pub"


def gate(keys: Path | None, known: Known | None = None, **settings: object) -> TrustGate:
    return TrustGate(TrustSettings(keys, **settings), known or Known())  # type: ignore[arg-type]


def test_a_good_bundle_is_taken_with_what_its_manifest_says(keys: Path) -> None:
    found = gate(keys).let_in(bundle(), NOW)
    assert isinstance(found, Seal)
    assert (found.trust, found.serial, found.actor) == (Trust.SIGNED, 5, "ann, approved by bob")
    assert (found.confirmed_at, found.key) == (NOW, KEY.id)


@pytest.mark.parametrize(
    ("sealed", "known", "file", "says"),
    [
        (Sealed(TREE), Known(), MANIFEST, "not signed"),
        (bundle(None), Known(), SIGNATURE, "no signature"),
        (bundle(OTHER), Known(), SIGNATURE, "not trusted"),
        (replace(bundle(), signature=bundle(serial=6).signature), Known(), SIGNATURE, "not of this content"),
        (replace(bundle(), tree="0" * 64), Known(), MANIFEST, "signed for other files"),
        (bundle(valid_from=NOW + timedelta(days=1)), Known(), MANIFEST, "not valid yet"),
        (bundle(valid_until=NOW), Known(), MANIFEST, "not valid any more"),
        (bundle(), Known(serial=6, tree="x"), MANIFEST, "older than serial 6"),
        (bundle(), Known(serial=5, tree="x"), MANIFEST, "another bundle had this serial"),
        (bundle(schema_version=2), Known(), MANIFEST, "version 1"),
        (bundle(serial="five"), Known(), MANIFEST, "number is expected"),
    ],
    ids=[
        "no manifest",
        "a manifest without a signature",
        "a key that nobody trusts",
        "the signature of another manifest",
        "an edit after the signature",
        "signed for tomorrow",
        "at the very instant of its end",
        "an older serial",
        "a serial used twice",
        "a format of the future",
        "a serial that is a word",
    ],
)
def test_res_19_a_bundle_that_must_not_rule_is_refused_with_place_and_fix(
    keys: Path, sealed: Sealed, known: Known, file: str, says: str
) -> None:
    found = gate(keys, known).let_in(sealed, NOW)
    assert not isinstance(found, Seal)
    assert (found[0].file, bool(found[0].fix)) == (file, True)
    assert says in found[0].text()


def test_an_older_bundle_is_taken_only_when_it_is_named_and_then_says_so(keys: Path) -> None:
    known = Known(serial=9, tree="x")
    assert not isinstance(gate(keys, known, allow_rollback=4).let_in(bundle(), NOW), Seal)
    allowed = gate(keys, known, allow_rollback=5)
    found = allowed.let_in(bundle(), NOW)
    assert isinstance(found, Seal)
    assert found.rolled_back
    assert not isinstance(allowed.let_in(bundle(serial=8), NOW), Seal), "nothing else between is let in"


def test_the_same_bundle_again_is_taken_and_one_signed_anew_makes_the_rules_younger(keys: Path) -> None:
    taken = gate(keys)
    first, again = taken.let_in(bundle(), NOW), taken.let_in(bundle(), NOW)
    assert isinstance(first, Seal)
    assert first == again
    later = taken.let_in(bundle(serial=6, valid_from=NOW + timedelta(days=3)), NOW + timedelta(days=3))
    assert isinstance(later, Seal)
    assert later.confirmed_at == NOW + timedelta(days=3)


@pytest.mark.parametrize(
    ("said", "ahead_s", "taken"),
    [
        ({"valid_from": NOW + timedelta(hours=1)}, 3600, True),
        ({"valid_from": NOW + timedelta(hours=1)}, 0, False),
        ({"valid_until": NOW + timedelta(minutes=30)}, 3600, False),
        ({"valid_until": NOW + timedelta(minutes=30)}, -3600, True),
    ],
    ids=[
        "signed by the wall clock's time",
        "early",
        "over by the wall clock",
        "a wall clock that is behind makes nothing younger",
    ],
)
def test_what_was_signed_by_the_wall_clock_is_judged_by_it(
    keys: Path, said: dict[str, datetime], ahead_s: int, taken: bool
) -> None:
    assert isinstance(gate(keys).let_in(bundle(**said), NOW, ahead_s), Seal) is taken


def test_without_keys_a_bundle_is_unsigned_and_its_age_counts_from_when_it_was_first_seen() -> None:
    known = Known(unsigned=(TREE, NOW - timedelta(days=3)))
    found = gate(None, known).let_in(Sealed(TREE), NOW)
    assert isinstance(found, Seal)
    assert (found.trust, found.actor, found.confirmed_at) == (Trust.UNSIGNED, "unsigned", NOW - timedelta(days=3))


@pytest.mark.parametrize(
    ("seal", "now", "trouble"),
    [
        (Seal(), NOW, None),
        (Seal(confirmed_at=NOW - timedelta(days=6, hours=23)), NOW, None),
        (Seal(confirmed_at=NOW - timedelta(days=7)), NOW, Trouble.TOO_OLD),
        (Seal(valid_until=NOW), NOW, Trouble.EXPIRED),
        (Seal(valid_until=NOW + timedelta(seconds=1)), NOW, None),
        (Seal(Trust.MISSING), NOW, Trouble.MISSING),
        (Seal(), datetime(1969, 12, 31, tzinfo=UTC), Trouble.CLOCK),
        (Seal(not_before=NOW + timedelta(hours=1)), NOW, Trouble.CLOCK),
        (Seal(not_before=NOW + timedelta(seconds=30)), NOW, None),
    ],
    ids=[
        "nothing is known against it",
        "an hour before its age",
        "at its age to the second",
        "at its end to the second",
        "a second before its end",
        "no bundle",
        "a clock before 1970",
        "a clock that went back",
        "a clock that is half a minute off",
    ],
)
def test_rules_are_usable_until_the_instant_at_which_they_are_not(
    seal: Seal, now: datetime, trouble: Trouble | None
) -> None:
    found = standing(seal, 7 * 86400, now)
    assert (found.trouble if found is not None else None) is trouble


# --- the folder --------------------------------------------------------------------------------------------------


class Still:
    """A clock that shows one instant."""

    def __init__(self, now: datetime) -> None:
        self.shown = now

    def now(self) -> datetime:
        return self.shown

    def wall_ahead_s(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        return None


def seal_folder(folder: Path, serial: int, now: datetime, **said: object) -> None:
    content = read_folder(folder)
    plain = {"schema_version": 1, "serial": serial, "revision": "r", "author": "ann", "valid_from": now, **said}
    manifest = write_manifest({**plain, "tree": tree_digest(content.files)})
    (folder / MANIFEST).write_bytes(manifest)
    (folder / SIGNATURE).write_text(sign(manifest, KEY, "c"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(CONFIG, tmp_path / "blueprint")
    return tmp_path / "blueprint"


def test_a_folder_and_its_config_map_have_the_same_tree(folder: Path, tmp_path: Path) -> None:
    seal_folder(folder, 1, START)
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in (p for p in folder.rglob("*") if p.is_file() and ".test." not in p.name):
        name = path.relative_to(folder).as_posix()
        if name.count("/") <= 1 and not name.startswith("schema"):
            (flat / name.replace("/", ".", 1)).write_bytes(path.read_bytes())
    kept = {name for name, _ in read_folder(folder).files if name.count("/") <= 1}
    assert {name for name, _ in read_folder(flat).files} == kept
    assert dict(read_folder(flat).seal) == dict(read_folder(folder).seal)


async def test_the_last_good_bundle_rules_while_others_are_refused_and_nothing_is_half_applied(
    folder: Path, keys: Path
) -> None:
    seal_folder(folder, 1, START)
    first = load_blueprint(folder, START)
    assert first.policy is not None
    clock = Still(START)
    source = WatchedFolder(folder, clock, first, gate(keys))
    begun = source.begin(first.policy, Known())
    assert begun.seal.trust is Trust.SIGNED
    (folder / "data.yaml").write_text((folder / "data.yaml").read_text() + "# an edit\n")
    refused = await source.poll()
    assert isinstance(refused, tuple)
    assert "signed for other files" in refused[0]
    assert await source.poll() is None, "it is told once"
    seal_folder(folder, 2, START)
    good = await source.poll()
    assert isinstance(good, Policy)
    assert good.seal.serial == 2


async def test_a_bundle_that_is_early_is_taken_when_its_time_comes_without_another_edit(
    folder: Path, keys: Path
) -> None:
    seal_folder(folder, 1, START)
    first = load_blueprint(folder, START)
    assert first.policy is not None
    clock = Still(START)
    source = WatchedFolder(folder, clock, first, gate(keys))
    source.begin(first.policy, Known())
    seal_folder(folder, 2, START + timedelta(hours=1))
    assert isinstance(await source.poll(), tuple)
    clock.shown = START + timedelta(hours=1)
    late = await source.poll()
    assert isinstance(late, Policy)
    assert late.seal.serial == 2


async def test_a_daemon_without_a_bundle_starts_without_rules_and_says_why(folder: Path, keys: Path) -> None:
    first = load_blueprint(folder, START)
    assert first.policy is not None
    source = WatchedFolder(folder, Still(START), first, gate(keys))
    begun = source.begin(first.policy, Known())
    assert (begun.seal.trust, begun.residency.rules) == (Trust.MISSING, ())
    said = await source.poll()
    assert isinstance(said, tuple)
    assert "not signed" in said[0]
    open_to_public = without_rules(first.policy, Seal(Trust.MISSING, public_goes_on=True))
    assert [rule.labels for rule in open_to_public.residency.rules] == [("public",)]


SELF_APPROVED = """
exceptions:
  for-me:
    rules: [internal-home-and-partners]
    scope: {queues: [autonomy-training], clusters: [cloud-c-us]}
    reason: I need it.
    ticket: T-1
    requested_by: ann
    approved_by: ann
    approver_role: data-office
    valid: {from: 2026-07-25T00:00:00Z, until: 2026-08-10T00:00:00Z}
"""


async def test_res_12_an_exception_that_its_requester_approved_refuses_the_whole_bundle_signed_or_not(
    folder: Path, keys: Path
) -> None:
    seal_folder(folder, 1, START)
    first = load_blueprint(folder, START)
    assert first.policy is not None
    source = WatchedFolder(folder, Still(START), first, gate(keys))
    source.begin(first.policy, Known())
    (folder / "residency" / "mine.yaml").write_text(SELF_APPROVED)
    seal_folder(folder, 2, START)
    refused = await source.poll()
    assert isinstance(refused, tuple)
    assert [text for text in refused if text.startswith("residency/mine.yaml:3:3: error")]
    (folder / "residency" / "mine.yaml").write_text(SELF_APPROVED.replace("approved_by: ann", "approved_by: bob"))
    seal_folder(folder, 3, START)
    assert isinstance(await source.poll(), Policy)
