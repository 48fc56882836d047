"""What an answer's body says: decoded at once, or, of a list, an object at a time.

A page of a list takes ten times its bytes as decoded, and decoding it at once takes long enough for everything else to
notice. An object at a time, one object is held as decoded, and whoever goes through a page may let others run between.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
from collections.abc import Iterator
from typing import Any

from connectors.kubernetes.fields import Raw, text
from dispatcher.core.errors import Transient

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_METADATA, _ITEMS = '"metadata"', '"items"'
_MEMBER = re.compile(r'"metadata"[ \t\n\r]*:[ \t\n\r]*')


def decoded(body: bytes) -> Any:
    """JSON, with the cycle collector at rest. Raises ValueError."""
    with _collector_at_rest():
        return json.loads(body)


@contextlib.contextmanager
def _collector_at_rest() -> Iterator[None]:
    """JSON makes many objects and not one cycle; looking for cycles among them took longer than reading them (39 ms
    for 100 pods instead of 16), and nothing else runs meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Page:
    """One answer to a list. `items` goes through its objects, once; `metadata` is known when it has come to the end.

    Raises Transient on the way where the body is no JSON object.
    """

    def __init__(self, body: bytes, where: str) -> None:
        self.metadata: Raw = {}
        self._where = where
        self._at = 0
        try:
            self._text = body.decode()
        except UnicodeDecodeError:
            raise self._not_json() from None

    def next_token(self) -> str:
        """The token of the next page, told before this one is read, so that it can be asked for meanwhile. Empty where
        there is none, or where it stands neither before `items` nor at the end: then `metadata` tells it in time.

        The list's own `metadata` is what nothing has opened before, or what nothing but the answer's end comes after.
        """
        at = self._text.find(_METADATA, 0, self._text.find(_ITEMS))
        is_first = at >= 0 and self._text.count("{", 0, at) == 1 and "[" not in self._text[:at]
        member = _MEMBER.match(self._text, at if is_first else self._text.rfind(_METADATA))
        if member is None:
            return ""
        try:
            metadata, end = _DECODER.raw_decode(self._text, member.end())
        except ValueError:
            return ""
        is_own = isinstance(metadata, dict) and (is_first or self._text[end:].strip() == "}")
        return text(metadata, "continue") if is_own else ""

    def items(self) -> Iterator[Raw]:
        """The objects in the order of the answer; entries that are no objects are left out.

        Kinds of the API's own come with `metadata` before `items`, custom resources in the order of the alphabet.
        """
        self._skip()
        self._need("{")
        more = not self._take("}")
        while more:
            key = self._value()
            self._need(":")
            if key == "items" and self._take("["):
                yield from self._entries()
            else:
                value = self._value()
                if key == "metadata" and isinstance(value, dict):
                    self.metadata = value
            more = self._take(",")
            if not more:
                self._need("}")
        if self._at != len(self._text):
            raise self._not_json()

    def _entries(self) -> Iterator[Raw]:
        more = not self._take("]")
        while more:
            entry = self._value()
            if isinstance(entry, dict):
                yield entry
            more = self._take(",")
            if not more:
                self._need("]")

    def _value(self) -> Any:
        try:
            with _collector_at_rest():
                value, self._at = _DECODER.raw_decode(self._text, self._at)
        except ValueError:
            raise self._not_json() from None
        self._skip()
        return value

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._not_json()

    def _take(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        if found:
            self._at += len(sign)
            self._skip()
        return found

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space is not None else self._at

    def _not_json(self) -> Transient:
        return Transient(f"{self._where}: the answer is not a JSON object")
