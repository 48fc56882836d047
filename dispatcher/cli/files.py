"""Files that are written whole or not at all: who is interrupted, or finds the disk full, keeps what was there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place and put it there. What is no plain file (a pipe, a device) is written into.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    place = path.resolve()
    with unfinished(place.parent) as made:
        (made / place.name).write_bytes(content)


@contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """A folder within another one. What is in it at the end is put into the other; after an error, nothing is.

    Raises:
        OSError: nothing can be written there.
    """
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as name:
        yield Path(name)
        for file in sorted(Path(name).iterdir()):
            os.replace(file, folder / file.name)
