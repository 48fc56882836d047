"""The client: errors, content types, deadlines, who talks to whom, and credentials that change under way."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from connectors.kubernetes.body import decoded
from connectors.kubernetes.client import MERGE_PATCH, ApiClient, Call, Deadlines, watch_timeout
from connectors.kubernetes.credentials import FileSource
from connectors.kubernetes.faults import Expired, Forbidden, NotFound, Unauthorized, UnsupportedPatch
from connectors.kubernetes.fields import child, text
from connectors.kubernetes.kubeconfig import Access, BadKubeconfig, parse
from dispatcher.core.errors import Conflict, EntrepotError, Refused, Transient
from tests.connectors.apiserver import KUEUE, ApiServer, always, named, problem
from tests.connectors.support import EagerClock, FakeClock, authority, b64, eventually, kubeconfig, settle, write

PATH = f"{KUEUE}/workloads"
ONE = f"{KUEUE}/namespaces/team-a/workloads/w1"


@dataclass
class Told:
    """A source that says what the test last told it."""

    access: Access | EntrepotError
    reads: int = 0
    log: list[str] = field(default_factory=list)

    async def read(self) -> Access:
        self.reads += 1
        if isinstance(self.access, EntrepotError):
            raise self.access
        return self.access


@asynccontextmanager
async def client_of(source: object, clock: FakeClock | None = None, **deadlines: float) -> AsyncIterator[ApiClient]:
    client = ApiClient("one", source, clock or EagerClock(), Deadlines(**deadlines))  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.serve(PATH)
        server.put(PATH, named("w1", "team-a"))
        yield server


def access(api: ApiServer, token: str = "t0") -> Access:
    return parse(api.kubeconfig(token))


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "tries"),
    [
        (400, Refused, 1),
        (401, Unauthorized, 2),
        (403, Forbidden, 1),
        (404, NotFound, 1),
        (405, Refused, 1),
        (409, Conflict, 1),
        (410, Expired, 1),
        (415, UnsupportedPatch, 1),
        (422, Conflict, 1),
        (429, Transient, 3),
        (500, Transient, 3),
        (503, Transient, 3),
        (302, Refused, 1),
    ],
)
async def test_each_status_becomes_one_kind_of_error(
    api: ApiServer, status: int, error: type[Exception], tries: int
) -> None:
    api.faults["GET", ONE] = always(status, "because of this")
    async with client_of(Told(access(api))) as client:
        with pytest.raises(error) as caught:
            await client.get(ONE)
    assert type(caught.value) is error
    assert f"one: GET {ONE}: {status} because of this" in str(caught.value)
    assert len(api.requests("GET", ONE)) == tries


async def test_retry_after_is_waited_for_and_told(api: ApiServer) -> None:
    api.faults["GET", ONE] = always(429, "slow down", {"Retry-After": "4"})
    clock = EagerClock()
    async with client_of(Told(access(api)), clock) as client:
        with pytest.raises(Transient) as caught:
            await client.get(ONE)
    assert caught.value.retry_after_s == 4
    assert clock.elapsed_s == 8


async def test_a_get_succeeds_when_the_third_try_does(api: ApiServer) -> None:
    numbers = itertools.count()

    async def twice(_: web.Request) -> web.StreamResponse | None:
        return problem(503, "not yet") if next(numbers) < 2 else None

    api.faults["GET", ONE] = twice
    async with client_of(Told(access(api))) as client:
        assert text(child(await client.get(ONE), "metadata"), "name") == "w1"


async def test_a_write_is_never_repeated(api: ApiServer) -> None:
    api.faults["PATCH", ONE] = always(503)
    async with client_of(Told(access(api))) as client:
        with pytest.raises(Transient):
            await client.once(Call("PATCH", ONE, body={}, content_type=MERGE_PATCH))
    assert len(api.requests("PATCH", ONE)) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff"], ids=["HTML", "a list", "not UTF-8"])
async def test_an_answer_that_is_no_json_object_is_transient(api: ApiServer, body: bytes) -> None:
    async def odd(_: web.Request) -> web.StreamResponse | None:
        return web.Response(body=body, content_type="application/json")

    api.faults["GET", ONE] = odd
    async with client_of(Told(access(api))) as client:
        with pytest.raises(Transient, match="not"):
            await client.once(Call("GET", ONE))


async def test_no_answer_within_the_deadline_is_transient(api: ApiServer) -> None:
    async def hang(_: web.Request) -> web.StreamResponse | None:
        await asyncio.get_running_loop().create_future()
        return None

    api.faults["GET", ONE] = hang
    async with client_of(Told(access(api)), call_s=0.05) as client:
        with pytest.raises(Transient, match="deadline"):
            await client.once(Call("GET", ONE))


async def test_fr_wat_05_no_deadline_of_calls_applies_to_a_watch(api: ApiServer) -> None:
    timeout = watch_timeout(Deadlines())
    assert (timeout.total, timeout.sock_read, timeout.sock_connect) == (None, None, 5.0)
    async with (
        client_of(Told(access(api)), call_s=0.001) as client,
        client.stream(PATH, {"watch": "true", "resourceVersion": "1"}, "application/json") as chunks,
    ):
        with pytest.raises(Transient, match="deadline"):
            await client.once(Call("GET", ONE, deadline_s=0.000001))
        await eventually(lambda: api.watching(PATH))
        api.bookmark(PATH)
        assert b"BOOKMARK" in await anext(aiter(chunks))


async def test_a_dead_server_is_transient(api: ApiServer) -> None:
    async with client_of(Told(access(api))) as client:
        await api.stop_listening()
        with pytest.raises(Transient):
            await client.once(Call("GET", ONE))


async def test_a_server_of_another_authority_is_refused_without_a_word(api: ApiServer) -> None:
    async with client_of(Told(parse(kubeconfig(api.url, authority("other"), "t0")))) as client:
        with pytest.raises(Refused, match="certificate"):
            await client.get(ONE)
    assert api.seen == []


async def test_a_redirect_does_not_carry_the_token_away(api: ApiServer) -> None:
    async def away(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=302, headers={"Location": f"{api.url}/elsewhere"})

    api.faults["GET", ONE] = away
    async with client_of(Told(access(api))) as client:
        with pytest.raises(Refused):
            await client.get(ONE)
    assert api.requests("GET", "/elsewhere") == []


# --- what is sent ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b'{"items": []}', b"{nonsense"], ids=["JSON", "no JSON"])
def test_the_collector_rests_while_an_answer_is_decoded_and_no_longer(body: bytes) -> None:
    """Looking for cycles in a page takes longer than reading it, and a page has none."""
    assert gc.isenabled()
    with suppress(ValueError):
        decoded(body)
    assert gc.isenabled()
    gc.disable()
    try:
        with suppress(ValueError):
            decoded(body)
        assert not gc.isenabled(), "whoever switched it off keeps it off"
    finally:
        gc.enable()


async def test_fr_nom_09_the_content_type_is_the_one_that_was_asked_for(api: ApiServer) -> None:
    api.serve("/api/v1/events")
    async with client_of(Told(access(api))) as client:
        await client.once(Call("PATCH", ONE + "/status", body={"status": {"x": 1}}, content_type=MERGE_PATCH))
        await client.once(Call("POST", "/api/v1/namespaces/team-a/events", body=named("e", "team-a")))
    types = {s.method: s.headers.get("Content-Type") for s in api.seen}
    assert types == {"PATCH": "application/merge-patch+json", "POST": "application/json"}


async def test_fr_nom_09_a_wrong_content_type_is_refused_and_not_tried_again(api: ApiServer) -> None:
    async with client_of(Told(access(api))) as client:
        with pytest.raises(Refused, match="415"):
            await client.once(Call("PATCH", ONE, body={}, content_type="application/strategic-merge-patch+json"))
    assert len(api.requests("PATCH")) == 1


async def test_a_client_certificate_speaks_for_us() -> None:
    trust = authority()
    async with ApiServer("certified", client_certificates=True) as api:
        content = api.kubeconfig(
            None,
            user_client_certificate_data=b64(trust.client_pem),
            user_client_key_data=b64(trust.client_key_pem),
        )
        async with client_of(Told(parse(content))) as client:
            assert await client.identity() == "uid-certified"
        assert "Authorization" not in api.seen[0].headers


@pytest.mark.parametrize(
    ("key", "named_in_error"),
    [("cluster_certificate_authority_data", "certificate-authority"), ("user_client_key_data", "client-certificate")],
)
async def test_material_that_openssl_cannot_read_takes_the_cluster_out(
    api: ApiServer, key: str, named_in_error: str
) -> None:
    pair = {"user_client_certificate_data": b64("x"), "user_client_key_data": b64("y")}
    changes = {**(pair if key.startswith("user") else {}), key: b64("-----BEGIN nonsense")}
    async with client_of(Told(parse(api.kubeconfig(**changes)))) as client:
        with pytest.raises(BadKubeconfig, match=named_in_error):
            await client.get(ONE)
        assert client.problem is not None


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param(10, id="two hundred calls"),
        pytest.param(50, id="a thousand calls", marks=pytest.mark.slow),
    ],
)
async def test_fr_aut_01_twenty_clusters_many_calls_no_cross_talk(turns: int) -> None:
    async with asyncio.timeout(30):
        servers = [ApiServer(f"c{number}") for number in range(20)]
        for server in servers:
            await server.__aenter__()
        clients = []
        for number, server in enumerate(servers):
            server.tokens = {f"token-{number}"}
            server.serve(PATH)
            server.put(PATH, named("w1", "team-a"))
            clients.append(ApiClient(server.name, Told(parse(server.kubeconfig(f"token-{number}"))), FakeClock()))

        async def write_and_ask(number: int, turn: int) -> None:
            client = clients[number]
            if turn % 2:
                body = {"status": {"by": client.name}}
                await client.once(Call("PATCH", f"{ONE}/status", body=body, content_type=MERGE_PATCH))
            else:
                assert await client.identity() == f"uid-c{number}"

        async with asyncio.TaskGroup() as group:
            for turn in range(turns):
                for number in range(20):
                    group.create_task(write_and_ask(number, turn))
        for number, (server, client) in enumerate(zip(servers, clients, strict=True)):
            assert len(server.seen) == turns
            assert {s.headers["Authorization"] for s in server.seen} == {f"Bearer token-{number}"}
            assert server.collections[PATH]["team-a", "w1"]["status"] == {"by": f"c{number}"}
            await client.close()
            await server.__aexit__(None, None, None)


# --- credentials that change -------------------------------------------------------------------------------------


async def test_fr_aut_03_a_rotated_secret_costs_at_most_one_401(api: ApiServer) -> None:
    source = Told(access(api))
    async with client_of(source) as client:
        await client.get(ONE)
        api.tokens = {"t1"}
        source.access = access(api, "t1")
        api.seen.clear()
        await client.get(ONE)
        await client.get(ONE)
    assert [s.headers["Authorization"] for s in api.seen] == ["Bearer t0", "Bearer t1", "Bearer t1"]


async def test_fr_aut_03_a_token_file_is_read_again_after_a_minute_and_on_401(api: ApiServer, tmp_path: Path) -> None:
    write(tmp_path / "token", b"t0")
    source = FileSource(write(tmp_path / "config", kubeconfig(api.url, api.trust, None, user_tokenFile="token")))
    clock = EagerClock()
    api.tokens = {"t0", "t1", "t2"}
    async with client_of(source, clock) as client:
        await client.get(ONE)
        write(tmp_path / "token", b"t1")
        await client.get(ONE)
        clock.elapsed_s += 60
        await client.get(ONE)
        write(tmp_path / "token", b"t2")
        api.tokens = {"t2"}
        clock.elapsed_s += 10
        await client.get(ONE)
    sent = [s.headers["Authorization"].removeprefix("Bearer ") for s in api.seen]
    assert sent == ["t0", "t0", "t1", "t1", "t2"], "the last t1 is the one 401"


async def test_a_token_file_that_vanishes_keeps_the_token_that_was_read(api: ApiServer, tmp_path: Path) -> None:
    write(tmp_path / "token", b"t0")
    source = FileSource(write(tmp_path / "config", kubeconfig(api.url, api.trust, None, user_tokenFile="token")))
    clock = EagerClock()
    async with client_of(source, clock) as client:
        await client.get(ONE)
        (tmp_path / "token").unlink()
        clock.elapsed_s += 61
        await client.get(ONE)


async def test_a_revoked_credential_is_no_storm_of_reads(api: ApiServer) -> None:
    source, clock = Told(access(api)), FakeClock()
    async with client_of(source, clock) as client:
        await client.get(ONE)
        api.tokens = set()
        for _ in range(20):
            with pytest.raises(Unauthorized):
                await client.once(Call("GET", ONE))
    assert source.reads == 2


async def test_many_calls_that_meet_the_rotation_together_read_the_source_once(api: ApiServer) -> None:
    source = Told(access(api))
    async with client_of(source, FakeClock()) as client:
        await client.get(ONE)
        api.tokens, source.access = {"t1"}, access(api, "t1")
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(client.once(Call("GET", ONE)))
    assert source.reads == 2


async def test_fr_aut_02_credentials_that_turn_bad_end_the_old_client_at_once(api: ApiServer) -> None:
    source = Told(access(api))
    async with client_of(source, FakeClock()) as client:
        await client.get(ONE)
        generation = client.generation
        async with client.stream(PATH, {"watch": "true", "resourceVersion": "1"}, "application/json") as chunks:
            await eventually(lambda: api.watching(PATH))
            source.access = BadKubeconfig("insecure-skip-tls-verify is refused")
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                reading = group.create_task(ends(chunks))
                await settle()
                await client.refresh()
            assert reading.result(), "who waits for the next bytes is told, not left waiting"
        with pytest.raises(BadKubeconfig, match="insecure"):
            await client.get(ONE)
        source.access = access(api)
        await client.refresh()
        await client.get(ONE)
        assert client.generation > generation


async def ended(chunks: AsyncIterator[bytes]) -> bool:
    with pytest.raises(Transient):
        await anext(chunks)
    return True


async def ends(chunks: AsyncIterator[bytes]) -> bool:
    with pytest.raises(Transient):
        await anext(aiter(chunks))
    return True


async def test_a_source_that_cannot_be_read_leaves_what_is_in_use(api: ApiServer) -> None:
    source = Told(access(api))
    async with client_of(source, FakeClock()) as client:
        await client.get(ONE)
        source.access = Transient("the hub is away")
        await client.refresh()
        await client.get(ONE)
        assert client.problem is None


async def test_a_source_that_was_never_read_is_transient(api: ApiServer) -> None:
    async with client_of(Told(Transient("the hub is away")), FakeClock()) as client:
        with pytest.raises(Transient, match="the hub is away"):
            await client.once(Call("GET", ONE))


async def test_no_secret_is_in_any_error_or_log(api: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "very-secret-token"
    source = Told(access(api, secret))
    async with client_of(source, FakeClock()) as client:
        with pytest.raises(Unauthorized) as caught:
            await client.get(ONE)
        source.access = BadKubeconfig("gone")
        await client.refresh()
    output = capsys.readouterr()
    for place in (str(caught.value), repr(caught.value), output.out, output.err):
        assert secret not in place
