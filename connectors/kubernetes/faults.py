"""The one place where HTTP answers and network failures become the core's errors.

Texts name the cluster, the method and the path, and repeat what the server said; never headers, bodies we sent,
tokens or certificates.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping

import aiohttp

from dispatcher.core.errors import Conflict, EntrepotError, Refused, Transient

_MESSAGE_LIMIT = 400
_RETRY_AFTER_LIMIT_S = 300.0


class NotFound(Refused):
    """The object, or the whole kind, is not there (404)."""


class Forbidden(Refused):
    """The apiserver knows us and does not let us do that (403)."""


class Unauthorized(Refused):
    """The apiserver does not accept our credentials (401), also not after they were read again."""


class UnsupportedPatch(Refused):
    """The apiserver, or something before it, does not take the content type of a patch (415)."""


class Expired(Conflict):
    """A resourceVersion or continue token is too old (410): list again."""


def of_status(status: int, where: str, body: bytes, headers: Mapping[str, str]) -> EntrepotError:
    """The error of an HTTP status of 300 and above. `where` is "cluster: METHOD path"."""
    text = f"{where}: {status} {_server_message(body)}".rstrip()
    if status == 401:
        return Unauthorized(text)
    if status == 403:
        return Forbidden(text)
    if status == 404:
        return NotFound(text)
    if status == 410:
        return Expired(text)
    if status == 415:
        return UnsupportedPatch(text)
    if status in (409, 422):
        return Conflict(text)
    if status == 429 or status >= 500:
        return Transient(text, _retry_after_s(headers))
    return Refused(text)


def of_network(error: Exception, where: str) -> EntrepotError:
    """The error of a call that got no complete answer: its outcome is unknown.

    A certificate that does not verify is Refused, not Transient: trying again cannot mend it.
    """
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return Refused(f"{where}: the server's certificate is not signed by the cluster's certificate authority")
    if isinstance(error, TimeoutError):
        return Transient(f"{where}: no answer within the deadline")
    if isinstance(error, OSError) and error.strerror:
        return Transient(f"{where}: {error.strerror}")
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | ConnectionError | RuntimeError):
        return Transient(f"{where}: the connection broke")
    return Transient(f"{where}: {type(error).__name__}")


NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
"""What aiohttp raises for anything between us and a complete answer."""


def _server_message(body: bytes) -> str:
    """The `message` of the API's Status object, cut; an HTML page of some proxy is of no use to anybody."""
    try:
        status = json.loads(body)
    except ValueError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message[:_MESSAGE_LIMIT] if isinstance(message, str) else ""


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return min(float(value), _RETRY_AFTER_LIMIT_S) if value.isascii() and value.isdigit() else None
