"""The manifest of a bundle: what a signature vouches for, and who answers for it.

A bundle is the whole blueprint, not its rule files alone: who edits a site fact or a data label changes what is legal
as well. `tree` is the digest of every file that the daemon reads, by its name inside the blueprint, so that a folder
and the ConfigMap made of it have the same one. The manifest is `residency/manifest.json`, its signature lies beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from dispatcher.config.problems import TOP, Mark, Problem, problem_at
from dispatcher.config.reading import validate
from dispatcher.config.strictyaml import locate, parse
from dispatcher.config.values import Instant, Positive, Strict, Text

MANIFEST = "residency/manifest.json"
SIGNATURE = f"{MANIFEST}.minisig"
SEAL_FILES = (MANIFEST, SIGNATURE)
SCHEMA = 1
"""The version of rule files and manifests that this program reads."""
TREE = r"^[0-9a-f]{64}$"


class Manifest(Strict):
    """As written by `entrepot policy sign`."""

    schema_version: Annotated[Positive, Field(description="Version of the bundle's format.")]
    serial: Annotated[Positive, Field(description="Grows with every bundle; an older one is refused.")]
    revision: Annotated[Text, Field(description="The git revision that it was made of.")]
    tree: Annotated[str, Field(pattern=TREE, description="SHA-256 over all files of the blueprint.")]
    author: Annotated[Text, Field(description="Who changed the rules.")]
    approvers: Annotated[tuple[Text, ...], Field(description="Who approved the change.")] = ()
    valid_from: Annotated[Instant, Field(description="From when on it counts: somebody vouches for it as of then.")]
    valid_until: Annotated[Instant | None, Field(description="Until when (exclusive); absent: see max_age.")] = None


@dataclass(frozen=True, slots=True)
class Sealed:
    """What lies beside the files of a blueprint, as bytes: their tree, the manifest and its signature if there are."""

    tree: str
    manifest: bytes | None = None
    signature: bytes | None = None


UNSEALED = Sealed("")


def tree_digest(files: Iterable[tuple[str, bytes]]) -> str:
    """One digest of names and contents, whatever the order."""
    lines = sorted(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def sealed(files: Iterable[tuple[str, bytes]], seal: Iterable[tuple[str, bytes]]) -> Sealed:
    found = dict(seal)
    return Sealed(tree_digest(files), found.get(MANIFEST), found.get(SIGNATURE))


def write_manifest(said: AbstractMapping[str, object]) -> bytes:
    """The file: JSON, one key a line, keys in order, instants in UTC, what is None left out.

    Whether it is a good one, `read_manifest` says.
    """
    plain = {key: _plain(value) for key, value in said.items() if value is not None}
    return (json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _plain(value: object) -> object:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """A manifest with the place of each of its keys."""

    manifest: Manifest
    marks: AbstractMapping[str, Mark]

    def problem(self, key: str, value: object, said: str, fix: str) -> Problem:
        return problem_at(MANIFEST, self.marks.get(key, TOP), value, said, fix)


def read_manifest(content: bytes) -> ReadManifest | tuple[Problem, ...]:
    """The manifest, or everything that is wrong with it. JSON is read as the YAML that it also is: strictly, with
    places."""
    tree, problems = parse(MANIFEST, content)
    if tree is None or problems:
        return tuple(problems)
    read = validate(Manifest, MANIFEST, tree)
    if read.model is None:
        return read.problems
    found = ReadManifest(read.model, {key: locate(tree, (key,))[0] for key in Manifest.model_fields})
    if read.model.schema_version != SCHEMA:
        said = f"this program reads bundles of version {SCHEMA}"
        return (found.problem("schema_version", read.model.schema_version, said, "sign with this program's version"),)
    return found
