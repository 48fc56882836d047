"""Cuts a watch's byte stream into lines, at any chunk boundary, up to a limit of our own (FR-WAT-06).

Bytes are cut, not text, so a character split over two chunks is whole again before anybody decodes it.
"""

from __future__ import annotations

LINE_LIMIT = 8 << 20
"""Above the API's own limit: etcd takes requests of 1.5 MiB by default, and encodings of one object differ."""


class LineSplitter:
    """Feed chunks, get complete lines. A line beyond the limit is skipped to its end and counted in `overlong`."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self.overlong = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their line ends; empty lines are left out."""
        *ends, rest = chunk.split(b"\n")
        lines = [line for end in ends if (line := self._complete(end))]
        self._keep(rest)
        return lines

    def _complete(self, end: bytes) -> bytes:
        self._keep(end)
        line = b"" if self._skipping else b"".join(self._parts)
        self._parts, self._size, self._skipping = [], 0, False
        return line.strip()

    def _keep(self, part: bytes) -> None:
        if self._skipping or not part:
            return
        self._size += len(part)
        if self._size > self._limit:
            self.overlong += 1
            self._parts, self._skipping = [], True
        else:
            self._parts.append(part)
