"""Everything that is wrong with a kubeconfig, not only the first thing; never any of its secrets. Pure.

`connectors/kubernetes/kubeconfig.py` refuses at the first fault, which is right for a client. A person who mends a
Secret wants them all. The rules are Kueue's (kueue-contract section 10).
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import yaml

from connectors.kubernetes.fields import Raw, child, children, text
from connectors.kubernetes.survey.der import not_after
from dispatcher.core.doctor.facts import KubeconfigFault

Faults = list[tuple[KubeconfigFault, str]]
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ADVICE = {
    "client-certificate": "put the content into client-certificate-data",
    "client-key": "put the content into client-key-data",
    "tokenFile": "put the content into token",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look into a kubeconfig gave. Ends are None when there is no such part or it does not say."""

    faults: tuple[tuple[KubeconfigFault, str], ...] = ()
    token_ends: datetime | None = None
    certificate_ends: datetime | None = None
    ca_ends: datetime | None = None


def inspect(content: bytes, *, from_secret: bool = True) -> Inspection:
    """Look into a kubeconfig. One that an operator mounted as a file may name files and an exec plugin."""
    try:
        raw = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError):
        raw = None
    if not isinstance(raw, dict):
        return Inspection(((KubeconfigFault.MALFORMED, "it is not YAML of a kubeconfig"),))
    context = _named(raw, "contexts", "context", text(raw, "current-context"))
    if context is None:
        detail = f"current-context {text(raw, 'current-context')!r} names no context"
        return Inspection(((KubeconfigFault.MALFORMED, detail),))
    cluster = _named(raw, "clusters", "cluster", text(context, "cluster"))
    user = _named(raw, "users", "user", text(context, "user")) or {}
    if cluster is None:
        detail = f"cluster {text(context, 'cluster')!r} of the current context is not in it"
        return Inspection(((KubeconfigFault.MALFORMED, detail),))
    faults = [*_server(text(cluster, "server")), *_trust(cluster, from_secret), *_user(user, from_secret)]
    return Inspection(
        tuple(faults),
        token_ends=token_end(text(user, "token")),
        certificate_ends=not_after(_data(user, "client-certificate-data")),
        ca_ends=not_after(_data(cluster, "certificate-authority-data")),
    )


def _named(raw: Raw, key: str, part: str, name: str) -> Raw | None:
    return next((child(entry, part) for entry in children(raw, key) if name and text(entry, "name") == name), None)


def _server(server: str) -> Faults:
    try:
        parts = urlsplit(server)
        host = parts.hostname or ""
    except ValueError:
        return [(KubeconfigFault.BAD_HOST, "server is not an address")]
    if parts.scheme != "https":
        return [(KubeconfigFault.NOT_HTTPS, f"server is {parts.scheme or 'no'}://..., https is needed")]
    if not _is_host(host):
        return [(KubeconfigFault.BAD_HOST, f"server's host {host!r} is neither an IP address nor a DNS name")]
    return []


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= 253 and _DNS.fullmatch(host) is not None
    return True


def _trust(cluster: Raw, from_secret: bool) -> Faults:
    found: Faults = []
    if cluster.get("insecure-skip-tls-verify") is True:
        found.append((KubeconfigFault.INSECURE, "insecure-skip-tls-verify is true"))
    if from_secret and text(cluster, "certificate-authority"):
        advice = "certificate-authority names a file: put the content into certificate-authority-data"
        found.append((KubeconfigFault.CA_FILE, advice))
    return found


def _user(user: Raw, from_secret: bool) -> Faults:
    found: Faults = []
    if from_secret:
        for key, advice in _ADVICE.items():
            if text(user, key):
                found.append((KubeconfigFault.CREDENTIAL_FILE, f"{key} names a file: {advice}"))
        if user.get("exec"):
            found.append((KubeconfigFault.EXEC, "exec runs a program where the reader runs: use a token"))
    if user.get("auth-provider"):
        found.append((KubeconfigFault.AUTH_PROVIDER, "auth-provider was removed from Kubernetes: use a token"))
    if text(user, "username") or text(user, "password"):
        found.append((KubeconfigFault.BASIC_AUTH, "username and password are no credential of Kubernetes: use a token"))
    credentials = ("token", "client-certificate-data", "client-certificate", "tokenFile")
    if not found and not any(text(user, key) for key in credentials) and not user.get("exec"):
        found.append((KubeconfigFault.NO_CREDENTIAL, "its user has neither a token nor a client certificate"))
    return found


def _data(raw: Raw, key: str) -> bytes:
    try:
        return base64.b64decode(text(raw, key), validate=False)
    except (binascii.Error, ValueError):
        return b""


def token_end(token: str) -> datetime | None:
    """The `exp` of a JWT, unverified: it is shown, nothing is decided by it. None for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        ends = claims.get("exp") if isinstance(claims, dict) else None
        return datetime.fromtimestamp(ends, UTC) if isinstance(ends, int | float) else None
    except (ValueError, OverflowError, OSError):
        return None
