"""Notices that a blueprint changed by looking at its bytes, and loads it as a whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from dispatcher.config.catalog import Answer
from dispatcher.config.files import read_folder
from dispatcher.config.loader import LoadResult, load_content


class BlueprintWatcher:
    """Looks at a folder when asked. It compares content, never inodes or times, so a mounted ConfigMap whose `..data`
    link is swapped is seen like any other edit (FR-CFG-06), and a touched file is not.

    Not a task: the loop that owns it calls `poll`, in a thread if the disk may be slow. Not safe for two threads at
    once.
    """

    def __init__(self, folder: Path, seen: LoadResult | None = None) -> None:
        """`seen`: what start-up has loaded already, so that the first poll reports only what changed since."""
        self._folder = folder
        self._content = seen.content if seen is not None else None
        self._last_good = seen if seen is not None and seen.ok else None

    @property
    def last_good(self) -> LoadResult | None:
        """The newest result that held as a whole: what rules while an edit is refused."""
        return self._last_good

    def poll(self, now: datetime, catalog: Answer | None = None) -> LoadResult | None:
        """None while nothing changed since the last look; else the result of the new content, good or bad. `catalog` is
        what data.yaml's endpoint last answered.

        Never raises for what is in the folder, nor for a folder that is missing.
        """
        content = replace(read_folder(self._folder), catalog=catalog)
        if content.digest() == self._content:
            return None
        result = load_content(content, self._folder, now)
        self._content = content.digest()
        if result.ok:
            self._last_good = result
        return result
