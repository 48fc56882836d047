"""The files of a bundle that ruled, as one piece for the store: what a start falls back to when the folder is no good.

Files and not what was compiled of them: they are read, checked and judged again like any others, signature included, by
whatever version and keys the next start has.
"""

from __future__ import annotations

import base64
import json
import zlib
from datetime import datetime
from pathlib import Path

from dispatcher.config.files import Content
from dispatcher.config.loader import LoadResult, load_content

_FORM = 1
MOST_BYTES = 64 * 2**20
"""More than that, unpacked, is no blueprint of ours."""


def packed(content: Content) -> bytes:
    """The same content gives the same bytes."""
    plain = {"form": _FORM, "files": _texts(content.files), "seal": _texts(content.seal)}
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode())


def unpacked(kept: bytes) -> Content | None:
    """None: it is damaged, or of a version that this one does not read."""
    try:
        inflating = zlib.decompressobj()
        plain = json.loads(inflating.decompress(kept, MOST_BYTES))
        if plain["form"] != _FORM:
            return None
        return Content(_bytes(plain["files"]), (), (), _bytes(plain["seal"]))
    except (zlib.error, ValueError, KeyError, TypeError):
        return None


def last_good(kept: bytes, folder: Path, now: datetime) -> LoadResult | None:
    """The blueprint of kept files, compiled by this version; None where that cannot be done any more."""
    content = unpacked(kept)
    if content is None:
        return None
    found = load_content(content, Path(f"{folder} (the last good one, from the store)"), now)
    return found if found.ok else None


def _texts(files: tuple[tuple[str, bytes], ...]) -> list[list[str]]:
    return [[name, base64.b64encode(content).decode()] for name, content in files]


def _bytes(texts: list[list[str]]) -> tuple[tuple[str, bytes], ...]:
    return tuple((str(name), base64.b64decode(text, validate=True)) for name, text in texts)
