"""The catalog's endpoint over HTTP: one GET, with deadlines, a size that ends, and as few surprises as possible.

httpx is imported here and nowhere else in the daemon: this module is loaded where a blueprint names a catalog.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from dispatcher.core.errors import Refused, Transient
from dispatcher.core.policy import CatalogSource
from dispatcher.core.ports import CatalogText, Clock

MAX_BYTES = 8 * 2**20
"""Beyond this it is no answer but a flood."""
MAX_ETAG = 1024
MAX_REDIRECTS = 3
ATTEMPTS = 3
LONGEST_PAUSE_S = 10.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Token = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds: for a connection, for silence while reading, and for one attempt with its redirects as a whole."""

    connect_s: float = 5.0
    silence_s: float = 10.0
    attempt_s: float = 20.0


@dataclass(slots=True)
class HttpCatalog:
    """The endpoint of one blueprint. `token` is asked anew for each attempt; None = none is sent.

    A connection lives for one attempt: once a minute is too rare to keep one, and a certificate or an address that
    changed is seen at once.
    """

    source: CatalogSource
    clock: Clock
    token: Token | None = None
    deadlines: Deadlines = Deadlines()

    async def fetch(self, etag: str | None) -> CatalogText | None:
        """The answer, or None where the one of `etag` still holds. Tries again where that may help; the only place that
        does.

        Raises:
            Transient: it did not answer, or cannot now.
            Refused: it answered something that is no catalog, or does not want us.
        """
        attempts = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS),
            retry=retry_if_exception_type(Transient),
            wait=_pause,
            sleep=self.clock.sleep,
            reraise=True,
        )
        return await attempts(self._attempt, etag)

    async def _attempt(self, etag: str | None) -> CatalogText | None:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if etag is not None:
            headers["If-None-Match"] = etag
        if self.token is not None:
            headers["Authorization"] = f"Bearer {await self.token()}"
        try:
            async with asyncio.timeout(self.deadlines.attempt_s):
                return await self._exchange(headers)
        except TimeoutError:
            raise Transient(f"no answer within {self.deadlines.attempt_s:g} s") from None
        except httpx.InvalidURL:
            raise Refused("a redirect to what is no URL") from None
        except httpx.TimeoutException:
            raise Transient("no answer in time") from None
        except httpx.HTTPError as error:
            # The text of the error may quote what the peer sent; its kind says enough, and holds no secret.
            raise Transient(f"cannot be reached ({_kind(error)})") from None

    async def _exchange(self, headers: dict[str, str]) -> CatalogText | None:
        timeout = httpx.Timeout(self.deadlines.silence_s, connect=self.deadlines.connect_s)
        trust = await asyncio.to_thread(_trust, self.source)
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, verify=trust) as client:
            url = httpx.URL(self.source.url)
            for _ in range(MAX_REDIRECTS + 1):
                async with client.stream("GET", url, headers=headers) as response:
                    if response.status_code not in _REDIRECTS:
                        return await _read(response, asked="If-None-Match" in headers)
                    url, headers = _follow(url, response, headers)
        raise Refused(f"more than {MAX_REDIRECTS} redirects")


def _pause(state: RetryCallState) -> float:
    """What the peer asked for, else one second and then two; never long, since it is asked again soon anyway."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after_s if isinstance(error, Transient) else None
    return min(asked if asked is not None else float(2 ** (state.attempt_number - 1)), LONGEST_PAUSE_S)


def _trust(source: CatalogSource) -> ssl.SSLContext | bool:
    """The CAs to trust; a connection without TLS needs none, and reading the system's takes a while."""
    if source.ca_file is None:
        return source.url.startswith("https://")
    try:
        return ssl.create_default_context(cafile=source.ca_file)
    except (OSError, ssl.SSLError):
        raise Refused("ca_file cannot be read, or holds no certificate in PEM") from None


def _follow(url: httpx.URL, response: httpx.Response, headers: dict[str, str]) -> tuple[httpx.URL, dict[str, str]]:
    """Where a redirect leads. Never from TLS to none; the token goes nowhere but to the host that it is for."""
    try:
        target = url.join(response.headers["location"])
    except (KeyError, httpx.InvalidURL):
        raise Refused(f"a redirect ({response.status_code}) to nowhere") from None
    if target.scheme != url.scheme and target.scheme != "https":
        raise Refused("a redirect away from https://")
    if target.userinfo:
        raise Refused("a redirect to a URL with a user name")
    if _origin(target) != _origin(url):
        headers = {name: value for name, value in headers.items() if name != "Authorization"}
    return target, headers


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


async def _read(response: httpx.Response, *, asked: bool) -> CatalogText | None:
    status = response.status_code
    if status == 304 and asked:
        return None
    if status == 429 or status >= 500:
        raise Transient(f"answers {status}", _retry_after_s(response))
    if status in (401, 403):
        raise Refused(f"answers {status}: the token is missing, wrong or not enough")
    if status != 200:
        raise Refused(f"answers {status}, where 200 is expected")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        shown = "".join(c for c in kind if c.isprintable())[:60]
        raise Refused(f"answers {shown or 'no content type'}, where application/json is expected")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused("answers compressed, though that was not asked for")
    return CatalogText(await _body(response), _etag(response))


def _etag(response: httpx.Response) -> str | None:
    """What can be sent back to it; without one it sends everything again, which does no harm."""
    etag: str = response.headers.get("etag", "")
    return etag if etag and etag.isascii() and len(etag) <= MAX_ETAG else None


async def _body(response: httpx.Response) -> bytes:
    declared = response.headers.get("content-length", "")
    body = bytearray()
    if not _digits(declared) or int(declared) <= MAX_BYTES:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_BYTES:
                break
        else:
            return bytes(body)
    raise Refused(f"answers more than {MAX_BYTES} bytes")


def _retry_after_s(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if _digits(value) and len(value) < 6 else None


def _digits(text: str) -> bool:
    """Whether it is a number as HTTP writes them; other scripts have digits as well, of which `int` knows not all."""
    return text.isascii() and text.isdigit() and len(text) <= 18


def _kind(error: httpx.HTTPError) -> str:
    """The class of a failure; for one of TLS what it found, which names no secret."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
