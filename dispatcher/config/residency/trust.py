"""Whether a bundle may rule: signed by a trusted key, of these very files, in its time, and not older than the last.

Judged before anything of it is used, and as a whole: a bundle that is refused changes nothing. What is refused for its
time or its key may be accepted later without another edit, so the gate asks again whenever it is asked to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from dispatcher.config.problems import TOP, Problem, problem_at
from dispatcher.config.residency.manifest import MANIFEST, SIGNATURE, Manifest, ReadManifest, Sealed, read_manifest
from dispatcher.config.residency.signing import PublicKey, SignatureError, read_trusted, verify
from dispatcher.core.instants import later
from dispatcher.core.seal import SKEW_S, Seal, Trust

SIGN_FIX = "sign it: entrepot policy sign DIR --key KEY"


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """`keys`: a file or folder of public keys; None: bundles are taken unsigned, and everybody is told so.

    `allow_rollback`: the one older serial that is accepted all the same. `public_goes_on`: while there is no bundle
    that may rule, data labelled `public` is dispatched and nothing else is.
    """

    keys: Path | None = None
    allow_rollback: int | None = None
    public_goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What earlier bundles left behind, over restarts: the highest serial with its tree, when unsigned files were first
    seen, and the newest instant that is on record."""

    serial: int | None = None
    tree: str = ""
    unsigned: tuple[str, datetime] | None = None
    not_before: datetime | None = None


NOTHING_KNOWN = Known()


@dataclass(slots=True)
class TrustGate:
    """One for a process. `known` grows with every bundle that is let in."""

    settings: TrustSettings = field(default_factory=TrustSettings)
    known: Known = NOTHING_KNOWN

    def missing(self) -> Seal:
        """The seal of no bundle at all."""
        return Seal(Trust.MISSING, not_before=self.known.not_before, public_goes_on=self.settings.public_goes_on)

    def let_in(self, sealed: Sealed, now: datetime, wall_ahead_s: int = 0) -> Seal | tuple[Problem, ...]:
        """The seal under which a bundle rules from now on, or why it must not. What somebody signed by the wall clock
        is judged by it, or a stricter bundle would come late; how long files have been here is not."""
        if self.settings.keys is None:
            seen = self.known.unsigned
            first_seen = seen[1] if seen is not None and seen[0] == sealed.tree and seen[1] <= now else now
            self.known = replace(self.known, unsigned=(sealed.tree, first_seen))
            return Seal(Trust.UNSIGNED, tree=sealed.tree, confirmed_at=first_seen, not_before=self.known.not_before)
        judged = judge_seal(sealed, self.settings.keys, later(now, wall_ahead_s))
        if not isinstance(judged, Signed):
            return judged
        problems = in_order_of_serials(judged.read, self.known, self.settings.allow_rollback)
        if problems:
            return problems
        manifest, known = judged.manifest, self.known
        rolled_back = known.serial is not None and manifest.serial < known.serial
        if not rolled_back:
            self.known = replace(known, serial=manifest.serial, tree=manifest.tree)
        return seal_of(judged, not_before=known.not_before, rolled_back=rolled_back)


@dataclass(frozen=True, slots=True)
class Signed:
    """A manifest that a trusted key vouches for."""

    read: ReadManifest
    key: PublicKey

    @property
    def manifest(self) -> Manifest:
        return self.read.manifest


def seal_of(signed: Signed, *, not_before: datetime | None = None, rolled_back: bool = False) -> Seal:
    manifest = signed.manifest
    return Seal(
        trust=Trust.SIGNED,
        serial=manifest.serial,
        revision=manifest.revision,
        tree=manifest.tree,
        author=manifest.author,
        approvers=manifest.approvers,
        key=signed.key.id,
        confirmed_at=manifest.valid_from,
        valid_until=manifest.valid_until,
        not_before=not_before,
        rolled_back=rolled_back,
    )


def judge_seal(sealed: Sealed, keys: Path, now: datetime) -> Signed | tuple[Problem, ...]:
    """Signature, content and time of a bundle. Its place among other bundles is not asked here."""
    if sealed.manifest is None:
        return (problem_at(MANIFEST, TOP, None, "the bundle is not signed, and only signed ones are taken", SIGN_FIX),)
    if sealed.signature is None:
        return (problem_at(SIGNATURE, TOP, None, "the manifest has no signature", SIGN_FIX),)
    try:
        key = verify(sealed.manifest, sealed.signature.decode(errors="replace"), read_trusted(keys))
    except SignatureError as error:
        return (problem_at(SIGNATURE, TOP, None, error.rule, error.fix),)
    read = read_manifest(sealed.manifest)
    if not isinstance(read, ReadManifest):
        return read
    return _of_these_files(read, sealed) or _in_its_time(read, now) or Signed(read, key)


def _of_these_files(read: ReadManifest, sealed: Sealed) -> tuple[Problem, ...]:
    tree = read.manifest.tree
    if tree == sealed.tree:
        return ()
    said = f"signed for other files: these have the digest {sealed.tree[:12]}"
    fix = "an edit came after the signature, or arrived without it: sign again"
    return (read.problem("tree", tree[:12], said, fix),)


def _in_its_time(read: ReadManifest, now: datetime) -> tuple[Problem, ...]:
    manifest = read.manifest
    if now < manifest.valid_from - timedelta(seconds=SKEW_S):
        said = f"not valid yet: it is {_at(now)} here"
        return (read.problem("valid_from", _at(manifest.valid_from), said, "wait, or check the clock of this machine"),)
    if manifest.valid_until is not None and manifest.valid_until <= now:
        said = f"not valid any more: it is {_at(now)} here"
        return (read.problem("valid_until", _at(manifest.valid_until), said, f"review the rules and {SIGN_FIX}"),)
    return ()


def in_order_of_serials(read: ReadManifest, known: Known, allowed: int | None) -> tuple[Problem, ...]:
    """An older bundle is refused: to put back what was in it, sign it again under the next serial."""
    manifest = read.manifest
    if known.serial is None or manifest.serial > known.serial:
        return ()
    if manifest.serial < known.serial:
        if manifest.serial == allowed:
            return ()
        said = f"older than serial {known.serial}, which ruled already"
        fix = f"sign it again under a higher serial, or start the daemon with --allow-rollback {manifest.serial}"
        return (read.problem("serial", manifest.serial, said, fix),)
    if manifest.tree != known.tree:
        said = "another bundle had this serial"
        return (read.problem("serial", manifest.serial, said, f"sign it again under serial {manifest.serial + 1}"),)
    return ()


def _at(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")
