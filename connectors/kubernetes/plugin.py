"""A credential plugin of a mounted kubeconfig: run as client-go runs one, ended at its deadline, and read strictly.

kubernetes-asyncio reads the kubeconfig's entry (command, arguments, environment). The program is run here, because that
library leaves one that hangs running, hands on no expiry and passes over client certificates without a word.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from connectors.kubernetes.fields import child, instant, text
from connectors.kubernetes.kubeconfig import BadKubeconfig, ExecPlugin
from dispatcher.core.errors import Transient

DEADLINE_S = 30.0
_OUTPUT_LIMIT = 1 << 20


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
    # asyncio's own way to start a process takes some turns of the loop: who is given up in one of them is beyond reach,
    # with all that the program has started by then.
    process = subprocess.Popen(  # noqa: ASYNC220 - as asyncio does itself: it is back after the exec
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A group of its own, so that what a wrapper script started ends with it.
        start_new_session=True,
    )
    try:
        found = await _printed(process)
        if await asyncio.to_thread(process.wait) != 0:
            raise ValueError("a plugin that fails")
        return found
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)


async def _printed(process: subprocess.Popen[bytes]) -> bytes:
    """All that it prints. Our end of the pipe is closed in any case: whoever left the group may hold the other one."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    assert process.stdout is not None
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    try:
        found = bytearray()
        while part := await reader.read(1 << 16):
            found += part
            if len(found) > _OUTPUT_LIMIT:
                raise ValueError("more output than any credential has")
        return bytes(found)
    finally:
        pipe.close()


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
