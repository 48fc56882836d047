"""The token that requests to one cluster carry: read when it is due, by one caller at a time, and before it expires."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from connectors.kubernetes.credentials import file_content
from connectors.kubernetes.kubeconfig import Access
from connectors.kubernetes.plugin import DEADLINE_S, Token, token_of_plugin
from dispatcher.core.errors import EntrepotError, Transient
from dispatcher.core.ports import Clock
from dispatcher.logs import get_logger

MARGIN_S = 60.0
"""A plugin runs again this long before its token expires: one run may hang until its deadline, and another be tried."""
LEAST_MARGIN_S = 5.0
"""The margin of a token that lives for less than four minutes is a quarter of its life, but not less than this."""
RETRY_S = 15.0
"""After a read that failed. Also how soon a plugin runs again whose token is past its expiry when it comes."""
SHORTEST_S = 5.0
"""No token is read more often than this unless a server refuses it: a plugin may be slow, and others wait for it."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Seconds. `file_s`: how old a token file's content may be (FR-AUT-03). `plugin_s`: how long a plugin's token is
    kept that has no expiry. `run_s`: a plugin's deadline."""

    file_s: float = 60.0
    plugin_s: float = 600.0
    run_s: float = DEADLINE_S


def kept_s(life_s: float) -> float:
    """How long a token is used that expires in `life_s` seconds; past its expiry it is tried, as clocks may differ."""
    if life_s <= 0:
        return RETRY_S
    return max(life_s - max(min(MARGIN_S, life_s / 4), LEAST_MARGIN_S), SHORTEST_S)


async def read_token(access: Access, run_s: float = DEADLINE_S) -> Token | None:
    """The token to send: inline, from the token file, or from the plugin. None when a certificate speaks for us.

    Raises:
        BadKubeconfig: the plugin cannot be run or gives no token.
        Transient: the token file cannot be read now, or the plugin did not answer.
    """
    if access.token is not None:
        return Token(access.token)
    if access.token_file is not None:
        return Token(await asyncio.to_thread(_token_from, access.token_file))
    if access.plugin is not None:
        return await token_of_plugin(access.plugin, run_s)
    return None


def _token_from(path: Path) -> str:
    token = file_content(path, "token file").decode("ascii", "replace").strip()
    if not token:
        raise Transient("the token file is empty")
    return token


class Bearer:
    """Of one cluster and one access: another access is another bearer, so no token is ever sent to another server.

    Whoever comes while the token is being read again goes on with the one that is still good, and waits only where
    there is none: a slow plugin delays nobody. A read that fails leaves the old token in use, for the server to judge.
    """

    def __init__(self, name: str, access: Access, clock: Clock, rhythm: Rhythm) -> None:
        self._name, self._access, self._clock, self._rhythm = name, access, clock, rhythm
        self._reading = asyncio.Lock()
        self._token: Token | None = None
        self._error: EntrepotError | None = None
        self._refused = False
        self._due_s = float("-inf")

    async def value(self) -> str | None:
        """The token to send now; None when a certificate speaks for us.

        Raises:
            BadKubeconfig, Transient: none was ever read, as `read_token` says; asked again after RETRY_S.
        """
        if self._access.token is not None:
            return self._access.token
        if self._access.token_file is None and self._access.plugin is None:
            return None
        others_see_to_it = self._reading.locked() and self._token is not None and not self._refused
        if self._is_due() and not others_see_to_it:
            async with self._reading:
                if self._is_due():
                    await self._read()
        if self._token is None:
            assert self._error is not None
            raise self._error.with_traceback(None)
        return self._token.value

    def refused(self) -> None:
        """A server answered 401 to it: the next caller reads it anew, and those beside wait for that."""
        self._refused, self._due_s = True, float("-inf")

    def _is_due(self) -> bool:
        return self._clock.monotonic_s() >= self._due_s

    async def _read(self) -> None:
        try:
            self._token, self._error = await read_token(self._access, self._rhythm.run_s), None
            self._due_s = self._clock.monotonic_s() + self._good_for_s()
        except EntrepotError as error:
            self._error, self._due_s = error, self._clock.monotonic_s() + RETRY_S
            if self._token is not None:
                get_logger().warning("token_not_read", cluster=self._name, error=str(error))
        self._refused = False

    def _good_for_s(self) -> float:
        if self._access.plugin is None or self._token is None:
            return self._rhythm.file_s
        if self._token.expiry_unreadable:
            get_logger().warning("token_expiry_unknown", cluster=self._name, problem="no timestamp")
        if self._token.expires_at is None:
            return self._rhythm.plugin_s
        life_s = (self._token.expires_at - self._clock.now()).total_seconds()
        if life_s <= 0:
            get_logger().warning("token_expiry_unknown", cluster=self._name, problem="in the past")
        return kept_s(life_s)
