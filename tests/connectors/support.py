"""What the connector tests share: a clock that only tests move, TLS material, kubeconfigs, and a patient check."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import heapq
import ipaddress
import itertools
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START = dt.datetime(2026, 8, 1, 12, 0, tzinfo=dt.UTC)


class FakeClock:
    """A Clock port that stands still until `advance`."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.elapsed_s)

    def monotonic_s(self) -> float:
        return self.elapsed_s

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.elapsed_s + seconds, next(self._numbers), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move on, waking sleepers in their order and letting everybody act at each moment."""
        await settle()
        target = self.elapsed_s + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            self.elapsed_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                await settle()
        self.elapsed_s = target
        await settle()


class EagerClock(FakeClock):
    """Sleeping moves the clock itself: for code that sleeps between tries and is awaited directly. `pauses` counts."""

    pauses = 0

    async def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.elapsed_s += seconds
        await asyncio.sleep(0)


async def settle(rounds: int = 60) -> None:
    """Let tasks and loopback sockets make progress, without waiting for any time to pass."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def eventually(check: Callable[[], Any], what: str = "") -> None:
    """Go on until `check` holds. Loopback needs some turns of the loop, never a moment of the fake clock."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 20
    while not check():
        if loop.time() > deadline:
            raise AssertionError(f"did not come true: {what or check}")
        await asyncio.sleep(0)


async def in_time(clock: FakeClock, check: Callable[[], Any], seconds: float, step_s: float = 0.5) -> None:
    """Move the clock in small steps until `check` holds, for at most `seconds` of its time."""
    for _ in range(round(seconds / step_s)):
        await clock.advance(step_s)
        await settle(200)
        if check():
            return
    await eventually(check)


# --- TLS and kubeconfigs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Authority:
    """A CA and one server pair for 127.0.0.1."""

    ca_pem: str
    server_pem: str
    client_pem: str
    client_key_pem: str


@cache
def authority(name: str = "one") -> Authority:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"ca {name}")])
    ca = _certificate(subject, subject, ca_key.public_key(), ca_key, ca=True)
    server_key, client_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    server = _certificate(_named("server"), subject, server_key.public_key(), ca_key)
    client = _certificate(_named("client"), subject, client_key.public_key(), ca_key)
    return Authority(_pem(ca), _pem(server) + _key_pem(server_key), _pem(client), _key_pem(client_key))


def server_context(trust: Authority, *, client_certificates: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(trust.server_pem)
        file.flush()
        context.load_cert_chain(file.name)
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=trust.ca_pem)
    return context


def kubeconfig(server: str, trust: Authority | None = None, token: str | None = "t0", **changes: Any) -> bytes:
    """A kubeconfig as Kueue wants them. `cluster_*` and `user_*` arguments set further keys (dashes as _)."""
    cluster: dict[str, Any] = {"server": server}
    if trust is not None:
        cluster["certificate-authority-data"] = b64(trust.ca_pem)
    user: dict[str, Any] = {} if token is None else {"token": token}
    for key, value in changes.items():
        part, _, name = key.partition("_")
        {"cluster": cluster, "user": user}[part][name.replace("_", "-")] = value
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
    ).encode()


def b64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def write(path: Path, content: bytes) -> Path:
    with suppress(FileNotFoundError):
        path.unlink()
    path.write_bytes(content)
    return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    ca: bool = False,
) -> x509.Certificate:
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
