"""A credential plugin of a mounted kubeconfig: run as client-go runs one, ended at its deadline, and read strictly.

kubernetes-asyncio reads the kubeconfig's entry (command, arguments, environment). The program is run here, because that
library leaves one that hangs running, hands on no expiry and passes over client certificates without a word.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from connectors.kubernetes.fields import child, instant, text
from connectors.kubernetes.kubeconfig import BadKubeconfig, ExecPlugin
from dispatcher.core.errors import Transient

DEADLINE_S = 30.0
_OUTPUT_LIMIT = 1 << 20
_PIPE_S = 1.0


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, and until when it is good as far as its giver says."""

    value: str = field(repr=False)
    expires_at: datetime | None = None
    """None when nobody says."""
    expiry_unreadable: bool = False
    """The plugin names an expiry that is no timestamp: it counts as unknown, and whoever asked has to say so."""


async def token_of_plugin(plugin: ExecPlugin, deadline_s: float = DEADLINE_S) -> Token:
    """Run the plugin and take its token. Neither its output nor its errors are told: both may hold secrets.

    Raises:
        BadKubeconfig: it cannot be run, fails, prints something else than an ExecCredential with a token, or speaks by
            a client certificate.
        Transient: it did not answer in time, and was ended.
    """
    name = f"credential plugin {plugin.command!r}"
    try:
        async with asyncio.timeout(deadline_s):
            answer = await _output(plugin)
    except TimeoutError:
        raise Transient(f"{name} did not answer within {deadline_s:g} s") from None
    except Exception:  # noqa: BLE001 - a foreign program: whatever it throws means no token, its text may hold one
        raise BadKubeconfig(f"{name} failed: run it by hand to see why") from None
    return _token(answer, dict(plugin.config).get("apiVersion"), name)


async def _output(plugin: ExecPlugin) -> bytes:
    command, environment = await asyncio.to_thread(_entry, plugin)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # A group of its own, so that what a wrapper script started ends with it.
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        found = bytearray()
        while part := await process.stdout.read(1 << 16):
            found += part
            if len(found) > _OUTPUT_LIMIT:
                raise ValueError("more output than any credential has")
        if await process.wait() != 0:
            raise ValueError("a plugin that fails")
        return bytes(found)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # Before the wait: with more in the pipe than asyncio reads ahead, the wait would not end.
            await _drained(process.stdout)
            await process.wait()


async def _drained(pipe: asyncio.StreamReader | None) -> None:
    """Our end of the pipe is closed by asyncio once its end is read. Whoever left the group may hold the other one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PIPE_S):
            while pipe is not None and await pipe.read(1 << 16):
                pass


def _entry(plugin: ExecPlugin) -> tuple[list[str], dict[str, str]]:
    """Command line and environment. In a thread: the library takes 0.4 s and 40 MB that most daemons do not need."""
    from kubernetes_asyncio.config.exec_provider import ExecProvider
    from kubernetes_asyncio.config.kube_config import ConfigNode

    provider = ExecProvider(ConfigNode("exec", dict(plugin.config)))
    asked = {"apiVersion": provider.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    return list(provider.args), {**provider.env, "KUBERNETES_EXEC_INFO": json.dumps(asked)}


def _token(answer: bytes, version: object, name: str) -> Token:
    try:
        said: Any = json.loads(answer)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("kind") != "ExecCredential":
        raise BadKubeconfig(f"{name} printed no ExecCredential: run it by hand to see why")
    if said.get("apiVersion") != version:
        raise BadKubeconfig(f"{name} answers in another apiVersion than the kubeconfig asks for ({version})")
    status = child(said, "status")
    if text(status, "clientCertificateData") or text(status, "clientKeyData"):
        raise BadKubeconfig(
            f"{name} gave a client certificate, which is refused: let it give a token, "
            "or put the certificate into client-certificate-data"
        )
    value = text(status, "token")
    if not value:
        raise BadKubeconfig(f"{name} gave no token")
    stated = status.get("expirationTimestamp")
    expires_at = instant(stated)
    return Token(value, expires_at, expiry_unreadable=stated is not None and expires_at is None)
