"""Credential plugins: run again before their token expires, so that no server says 401, and ended when they hang."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.kubernetes.bearer import kept_s, read_token
from connectors.kubernetes.client import ApiClient, Deadlines
from connectors.kubernetes.credentials import FileSource
from connectors.kubernetes.faults import Unauthorized
from connectors.kubernetes.kubeconfig import BadKubeconfig, parse
from connectors.kubernetes.plugin import Token
from dispatcher.core.errors import Transient
from tests.connectors.apiserver import KUEUE, ApiServer, named
from tests.connectors.support import START, EagerClock, authority, eventually, kubeconfig, write

URL = "https://10.0.0.1:6443"
TRUST = authority()
SECRET = "s3cr3t-token-value"
VERSION = "client.authentication.k8s.io/v1"
PATH = f"{KUEUE}/workloads"
ONE = f"{KUEUE}/namespaces/team-a/workloads/w1"


def answer(value: str | None = "t0", version: str = VERSION, **status: Any) -> str:
    """An ExecCredential as a plugin prints it."""
    if value is not None:
        status["token"] = value
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def runs_shell(script: str) -> dict[str, Any]:
    return {"apiVersion": VERSION, "command": "sh", "args": ["-c", script]}


def prints(printed: str) -> dict[str, Any]:
    return {"apiVersion": VERSION, "command": "echo", "args": [printed]}


async def token_of(plugin: dict[str, Any], run_s: float = 30.0) -> Token | None:
    return await read_token(parse(kubeconfig(URL, TRUST, None, user_exec=plugin), Path()), run_s)


# --- one run -------------------------------------------------------------------------------------------------------


async def test_a_credential_plugin_of_a_mounted_kubeconfig_is_run_and_its_expiry_is_read() -> None:
    assert await token_of(prints(answer("plugged"))) == Token("plugged")
    told = await token_of(prints(answer("plugged", expirationTimestamp="2026-08-01T12:05:00Z")))
    assert told == Token("plugged", START + timedelta(minutes=5))


async def test_it_gets_its_environment_and_what_it_is_asked_for() -> None:
    script = "printf '%s' \"$KUBERNETES_EXEC_INFO\" | grep -q ExecCredential && printf '%s' \"$PRINTED\""
    plugin = {**runs_shell(script), "env": [{"name": "PRINTED", "value": answer("by-env")}]}
    assert await token_of(plugin) == Token("by-env")


BROKEN = {
    "prints nonsense": (prints("no json " + SECRET), "printed no ExecCredential"),
    "prints another kind": (prints(json.dumps({"kind": "Secret", "data": SECRET})), "printed no ExecCredential"),
    "prints nothing": (prints(""), "printed no ExecCredential"),
    "speaks another version": (prints(answer(SECRET, "client.authentication.k8s.io/v1beta1")), "another apiVersion"),
    "gives no token": (prints(answer(None)), "gave no token"),
    "gives something else as the token": (prints(answer(None, token=[SECRET])), "gave no token"),
    "gives a client certificate": (
        prints(answer(None, clientCertificateData="C", clientKeyData=SECRET)),
        "client certificate, which is refused: let it give a token",
    ),
    "gives a client certificate beside the token": (
        prints(answer(SECRET, clientCertificateData="C", clientKeyData=SECRET)),
        "client certificate, which is refused",
    ),
    "fails": (runs_shell(f"echo {SECRET}; echo {SECRET} >&2; exit 3"), "failed: run it by hand"),
    "fails after a good answer": (runs_shell(f"echo '{answer(SECRET)}'; exit 1"), "failed: run it by hand"),
    "does not exist": ({"apiVersion": VERSION, "command": "/nowhere/plugin"}, "failed: run it by hand"),
    "prints without end": (runs_shell(f"yes {SECRET}"), "failed: run it by hand"),
    "has no apiVersion in the kubeconfig": ({"command": "echo", "args": [answer(SECRET)]}, "failed: run it by hand"),
}


@pytest.mark.parametrize(("plugin", "told"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_plugin_is_named_and_its_output_is_not(plugin: dict[str, Any], told: str) -> None:
    with pytest.raises(BadKubeconfig) as caught:
        await token_of(plugin)
    assert told in str(caught.value)
    assert f"credential plugin {plugin['command']!r}" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_plugin_that_hangs_is_a_transient_error_after_its_deadline() -> None:
    with pytest.raises(Transient, match=r"'sh' did not answer within 0\.05 s"):
        await token_of(runs_shell("sleep 600"), run_s=0.05)


async def test_a_plugin_that_is_given_up_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    waits = runs_shell(f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
    run = asyncio.create_task(token_of(waits))
    await eventually(pids.exists)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    own, started = map(int, pids.read_text().split())
    for pid in (own, started):
        await eventually(lambda pid=pid: not alive(pid), f"{pid} is gone")  # type: ignore[misc]


def alive(pid: int) -> bool:
    """Whether it runs; one that is dead and not yet fetched by its parent does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


# --- how long a token is kept --------------------------------------------------------------------------------------

KEPT = {
    "an hour: until a minute before its end": (3600, 3540),
    "five minutes: until a minute before its end": (300, 240),
    "a minute: a quarter of its life before its end": (60, 45),
    "ten seconds: five before its end": (10, 5),
    "six seconds: no token is read more often than each five": (6, 5),
    "none left: it is tried, and read again soon": (0, 15),
    "expired an hour ago: it is tried, and read again soon": (-3600, 15),
}


@pytest.mark.parametrize(("life_s", "kept"), KEPT.values(), ids=KEPT.keys())
def test_how_long_a_token_is_kept(life_s: float, kept: float) -> None:
    assert kept_s(life_s) == kept


@dataclass
class Plugged:
    """A server that knows the token of each run for as long as it says, and a plugin that reads from a file."""

    api: ApiServer
    clock: EagerClock
    client: ApiClient
    folder: Path
    ends: dict[str, float]

    def gives(self, token: str, life_s: float | None, expiry: str | None = None) -> None:
        """From now on the plugin prints this token; the server takes it for `life_s` seconds, or for ever."""
        self.ends[token] = float("inf") if life_s is None else self.clock.elapsed_s + life_s
        if expiry is None and life_s is not None:
            expiry = (self.clock.now() + timedelta(seconds=life_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        stated = {} if expiry is None else {"expirationTimestamp": expiry}
        write(self.folder / "answer", answer(token, **stated).encode())

    async def get(self) -> None:
        self.api.tokens = {token for token, end in self.ends.items() if self.clock.elapsed_s < end}
        await self.client.get(ONE)

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text().splitlines())

    @property
    def sent(self) -> list[str]:
        return [seen.headers["Authorization"].removeprefix("Bearer ") for seen in self.api.seen]


@pytest.fixture
async def plugged(tmp_path: Path) -> AsyncIterator[Plugged]:
    async with ApiServer() as api:
        api.serve(PATH)
        api.put(PATH, named("w1", "team-a"))
        script = f"cd {tmp_path}; echo run >> runs; cat answer"
        config = kubeconfig(api.url, api.trust, None, user_exec=runs_shell(script))
        clock = EagerClock()
        source = FileSource(write(tmp_path / "config", config))
        client = ApiClient("one", source, clock, Deadlines(plugin_run_s=20.0))
        yield Plugged(api, clock, client, tmp_path, {})
        await client.close()


async def test_fr_aut_03_a_plugin_runs_again_before_its_token_expires_and_no_call_meets_a_401(plugged: Plugged) -> None:
    """Tokens of five minutes, a call each ten seconds for half an hour."""
    for step in range(180):
        plugged.gives(f"t{step}", 300)
        await plugged.get()
        plugged.clock.elapsed_s += 10
    assert len(plugged.sent) == 180, "a 401 would have been asked twice"
    assert plugged.runs == 8, "one each 240 s"
    assert plugged.sent[:25] == ["t0"] * 24 + ["t24"]


async def test_a_token_without_an_expiry_is_kept_for_ten_minutes(plugged: Plugged) -> None:
    plugged.gives("t0", None)
    for at in (0, 599):
        plugged.clock.elapsed_s = at
        await plugged.get()
    assert plugged.runs == 1
    plugged.clock.elapsed_s = 600
    await plugged.get()
    assert plugged.runs == 2


@pytest.mark.parametrize(("expiry", "kept"), [("tomorrow", 600), ("2026-08-01T11:00:00Z", 15)])
async def test_an_expiry_that_cannot_be_is_told_and_the_token_is_used(
    plugged: Plugged, expiry: str, kept: int, capsys: pytest.CaptureFixture[str]
) -> None:
    plugged.gives("t0", None, expiry)
    for at, runs in ((0, 1), (kept - 1, 1), (kept, 2)):
        plugged.clock.elapsed_s = at
        await plugged.get()
        assert plugged.runs == runs
    assert capsys.readouterr().out.count("token_expiry_unknown") == 2
    assert plugged.sent == ["t0"] * 3


async def test_fr_aut_03_a_token_that_is_revoked_early_costs_one_401_and_one_run(plugged: Plugged) -> None:
    plugged.gives("t0", 300)
    await plugged.get()
    plugged.clock.elapsed_s += 20
    plugged.ends["t0"] = 0
    plugged.gives("t1", 300)
    await plugged.get()
    await plugged.get()
    assert plugged.sent == ["t0", "t0", "t1", "t1"]
    assert plugged.runs == 2


async def test_a_plugin_that_fails_leaves_the_good_token_in_use_and_is_tried_again(
    plugged: Plugged, capsys: pytest.CaptureFixture[str]
) -> None:
    plugged.gives("t0", 300)
    await plugged.get()
    write(plugged.folder / "answer", SECRET.encode())
    for at in (240, 254, 255):
        plugged.clock.elapsed_s = at
        await plugged.get()
    assert plugged.runs == 3, "at 240 s and, as that failed, at 255 s"
    plugged.gives("t1", 300)
    plugged.clock.elapsed_s = 270
    await plugged.get()
    assert plugged.sent == ["t0"] * 4 + ["t1"]
    told = capsys.readouterr().out
    assert told.count("token_not_read") == 2
    assert SECRET not in told


async def test_a_plugin_that_never_worked_is_not_run_by_each_call(plugged: Plugged) -> None:
    write(plugged.folder / "answer", b"no")
    for _ in range(5):
        with pytest.raises(BadKubeconfig, match="printed no ExecCredential"):
            await plugged.get()
    assert (plugged.runs, plugged.sent) == (1, [])
    plugged.gives("t0", 300)
    plugged.clock.elapsed_s += 15
    await plugged.get()
    assert plugged.sent == ["t0"]


async def test_many_first_calls_run_the_plugin_once_and_none_goes_without_a_token(plugged: Plugged) -> None:
    plugged.gives("t0", 300)
    async with asyncio.TaskGroup() as group:
        for _ in range(9):
            group.create_task(plugged.get())
    assert (plugged.runs, plugged.sent) == (1, ["t0"] * 9)


async def test_while_a_slow_plugin_runs_the_others_go_on_with_the_token_that_is_still_good(plugged: Plugged) -> None:
    plugged.gives("t0", 300)
    await plugged.get()
    (plugged.folder / "answer").unlink()
    os.mkfifo(plugged.folder / "answer")
    plugged.ends["t1"] = 900
    plugged.clock.elapsed_s = 250
    slow = asyncio.create_task(plugged.get())
    await eventually(lambda: plugged.runs == 2, "the plugin waits for its answer")
    await plugged.get()
    assert not slow.done()
    writer = await asyncio.to_thread((plugged.folder / "answer").open, "w")
    with writer:
        writer.write(answer("t1"))
    await slow
    assert plugged.sent == ["t0", "t0", "t1"]


async def test_a_server_that_takes_no_token_is_no_storm_of_runs(plugged: Plugged) -> None:
    plugged.gives("t0", 300)
    await plugged.get()
    plugged.ends["t0"] = 0
    for _ in range(10):
        with pytest.raises(Unauthorized):
            await plugged.get()
    assert plugged.runs == 2


async def test_a_token_is_never_sent_to_the_server_of_another_kubeconfig(plugged: Plugged) -> None:
    """The kubeconfig changes and its plugin fails: the token that was read for the old one is no way out."""
    plugged.gives("t0", None)
    await plugged.get()
    other = kubeconfig(plugged.api.url, plugged.api.trust, None, user_exec=runs_shell("exit 1"))
    write(plugged.folder / "config", other)
    await plugged.client.refresh()
    with pytest.raises(BadKubeconfig, match="failed"):
        await plugged.get()
    assert plugged.sent == ["t0"]
