"""Signatures on bundles: minisign's format, on the Ed25519 of `cryptography` (docs/adr/0016-signed-bundles.md).

A public key is one line that a person can read out, a signature is a small text file beside what it signs, and neither
needs a network to be checked. `minisign -S` and `minisign -V` write and read the same files.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded by the first who signs or checks: a start whose rules nobody signs does not wait for it
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PLAIN, _PREHASHED, _NO_PASSWORD, _BLAKE2B = b"Ed", b"ED", b"\0\0", b"B2"
_KEY_ID, _KEY, _SEED, _SIGNATURE, _SUM = 8, 32, 32, 64, 32
_SALT_AND_LIMITS = 48
_COMMENT, _TRUSTED = "untrusted comment: ", "trusted comment: "
MOST_KEY_BYTES = 64 * 1024
"""No file of keys is larger; one that is, is something else."""
PASSWORD_FIX = "make one without a password (entrepot policy keygen, minisign -G -W), or sign with minisign -S"


class SignatureError(ValueError):
    """A key or a signature that is not good. `fix` says what to do about it."""

    def __init__(self, rule: str, fix: str) -> None:
        super().__init__(rule)
        self.rule = rule
        self.fix = fix


@dataclass(frozen=True, slots=True)
class PublicKey:
    """`id` is what people call the key by; `owner` is the file that it was read from, and vouches for nothing."""

    id: str
    raw: bytes
    owner: str = ""

    def text(self) -> str:
        """The key as minisign writes it: two lines, of which the second is the key."""
        body = base64.b64encode(_PLAIN + bytes.fromhex(self.id)[::-1] + self.raw).decode()
        return f"{_COMMENT}minisign public key {self.id}\n{body}\n"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """Never shown, logged or compared."""

    id: str
    seed: bytes = field(repr=False)

    def public(self) -> PublicKey:
        return PublicKey(self.id, _private(self.seed).public_key().public_bytes_raw())

    def text(self) -> str:
        """The key as minisign writes one without a password."""
        key_id, pair = bytes.fromhex(self.id)[::-1], self.seed + self.public().raw
        checksum = hashlib.blake2b(_PLAIN + key_id + pair, digest_size=_SUM).digest()
        body = _PLAIN + _NO_PASSWORD + _BLAKE2B + bytes(_SALT_AND_LIMITS) + key_id + pair + checksum
        return f"{_COMMENT}minisign secret key\n{base64.b64encode(body).decode()}\n"


def make_key(seed: bytes, key_id: bytes) -> SecretKey:
    """A key of 32 random bytes and 8 more for its name; where they come from is the caller's business."""
    if len(seed) != _SEED or len(key_id) != _KEY_ID:
        raise ValueError(f"a key is made of {_SEED} and {_KEY_ID} bytes")
    return SecretKey(key_id[::-1].hex().upper(), seed)


def sign(content: bytes, key: SecretKey, comment: str) -> str:
    """The signature file of some bytes. `comment` is one line, signed as well.

    Raises ValueError on a comment of more than one line.
    """
    if "\n" in comment or "\r" in comment:
        raise ValueError("a comment is one line")
    private = _private(key.seed)
    signature = private.sign(hashlib.blake2b(content).digest())
    whole = private.sign(signature + comment.encode())
    body = base64.b64encode(_PREHASHED + bytes.fromhex(key.id)[::-1] + signature).decode()
    said = f"{_COMMENT}signature from minisign secret key {key.id}"
    return f"{said}\n{body}\n{_TRUSTED}{comment}\n{base64.b64encode(whole).decode()}\n"


def _private(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


def verify(content: bytes, signature: str, keys: Iterable[PublicKey]) -> PublicKey:
    """The trusted key that made a signature.

    Raises:
        SignatureError: malformed, by a key that is not trusted, or not of these bytes.
    """
    algorithm, key_id, made, comment, whole = _parsed(signature)
    known = {key.id: key for key in keys}
    key = known.get(key_id)
    if key is None:
        listed = ", ".join(sorted(known)) or "none"
        raise SignatureError(f"signed by key {key_id}, which is not trusted", f"sign with one of these keys: {listed}")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = Ed25519PublicKey.from_public_bytes(key.raw)
    signed = hashlib.blake2b(content).digest() if algorithm == _PREHASHED else content
    again = "sign it again: entrepot policy sign"
    try:
        public.verify(made, signed)
    except InvalidSignature:
        raise SignatureError(f"the signature of key {key_id} is not of this content", again) from None
    try:
        public.verify(whole, made + comment.encode())
    except InvalidSignature:
        raise SignatureError(f"the trusted comment is not what key {key_id} signed", again) from None
    return key


def _parsed(text: str) -> tuple[bytes, str, bytes, str, bytes]:
    lines = text.replace("\r\n", "\n").split("\n")
    fix = "a signature has four lines, as entrepot policy sign and minisign -S write them"
    if len(lines) < 4 or not lines[0].startswith(_COMMENT) or not lines[2].startswith(_TRUSTED):
        raise SignatureError("not a signature", fix)
    body, whole = _bytes_of(lines[1]), _bytes_of(lines[3])
    if body is None or whole is None or len(body) != 2 + _KEY_ID + _SIGNATURE or len(whole) != _SIGNATURE:
        raise SignatureError("not a signature", fix)
    if body[:2] not in (_PLAIN, _PREHASHED):
        raise SignatureError(f"signed by {body[:2]!r}, which is not known", fix)
    comment = lines[2].removeprefix(_TRUSTED)
    return body[:2], body[2 : 2 + _KEY_ID][::-1].hex().upper(), body[2 + _KEY_ID :], comment, whole


def _bytes_of(line: str) -> bytes | None:
    try:
        return base64.b64decode(line.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None


# --- key files ---------------------------------------------------------------------------------------------------


def parse_public_keys(text: str, owner: str = "") -> tuple[PublicKey, ...]:
    """Every key of a text: lines of keys, comments and empty lines.

    Raises:
        SignatureError: a line that is neither, or no key at all.
    """
    found = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        if not line.strip() or line.startswith((_COMMENT, "#")):
            continue
        body = _bytes_of(line)
        if body is None or len(body) != 2 + _KEY_ID + _KEY or body[:2] != _PLAIN:
            fix = "put the public key there, as in the .pub file of entrepot policy keygen"
            raise SignatureError(f"{owner or 'keys'}:{number}: not a public key", fix)
        found.append(PublicKey(body[2 : 2 + _KEY_ID][::-1].hex().upper(), body[2 + _KEY_ID :], owner))
    if not found:
        raise SignatureError(f"{owner or 'keys'}: no public key", "put the .pub file of entrepot policy keygen there")
    return tuple(found)


def parse_secret_key(text: str) -> SecretKey:
    """Raises SignatureError: not a key, damaged, or locked by a password."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip() and not line.startswith(_COMMENT)]
    body = _bytes_of(lines[0]) if len(lines) == 1 else None
    fix = "name the secret key that entrepot policy keygen or minisign -G -W made"
    at = 6 + _SALT_AND_LIMITS
    if body is None or len(body) != at + _KEY_ID + _SEED + _KEY + _SUM or body[:2] != _PLAIN or body[4:6] != _BLAKE2B:
        raise SignatureError("not a secret key", fix)
    if body[2:4] != _NO_PASSWORD:
        raise SignatureError("the key is locked by a password", PASSWORD_FIX)
    key_id, pair, checksum = body[at : at + _KEY_ID], body[at + _KEY_ID : -_SUM], body[-_SUM:]
    if hashlib.blake2b(_PLAIN + key_id + pair, digest_size=_SUM).digest() != checksum:
        raise SignatureError("the secret key is damaged", fix)
    key = make_key(pair[:_SEED], key_id)
    if key.public().raw != pair[_SEED:]:
        raise SignatureError("the secret key and its public half do not belong together", fix)
    return key


def read_trusted(place: Path) -> tuple[PublicKey, ...]:
    """The public keys of a file, or of every `*.pub` of a folder, by id.

    Raises:
        SignatureError: nothing there that is a key, or something there that is none. Half a set of keys is none.
    """
    try:
        files = sorted(place.glob("*.pub")) if place.is_dir() else [place]
        texts = [(file.name, file.read_bytes()[: MOST_KEY_BYTES + 1]) for file in files]
    except OSError as error:
        raise SignatureError(
            f"{place.name}: cannot be read ({error.strerror})", "mount the trusted keys there"
        ) from None
    found: dict[str, PublicKey] = {}
    for name, content in texts:
        if len(content) > MOST_KEY_BYTES:
            raise SignatureError(f"{name}: too large for a file of keys", "put public keys there")
        for key in parse_public_keys(content.decode(errors="replace"), name):
            found[key.id] = key
    if not found:
        raise SignatureError(f"{place.name}: no *.pub file in this folder", "put the .pub file of policy keygen there")
    return tuple(found[key_id] for key_id in sorted(found))
