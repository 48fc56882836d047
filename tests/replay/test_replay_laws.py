"""Laws of replay: what was stored comes back equal to the last repr, and decides to the same bytes."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.decide import decide, hold_of
from dispatcher.core.decision import Decision
from dispatcher.core.plain import plain_codec
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs, Verdict, compare, replay
from dispatcher.core.snapshot import ClusterSnapshot, Hold, HubView, Snapshot
from dispatcher.core.workload import Request
from dispatcher.store import SqlStore, encode_decision, open_store
from dispatcher.store.documents import (
    HubRoutes,
    TakenSnapshot,
    decode_record,
    decode_snapshot,
    encode_record,
    encode_snapshot,
    replayed_digest,
)
from dispatcher.store.pieces import Packer, unpacked
from tests.core_builders import NOW
from tests.examples import examples
from tests.property.test_core_laws import World, gangs, worlds
from tests.replay.values import INSTANTS, TEXTS, values_of

pytestmark = pytest.mark.slow

few = examples(25)
ANY_INPUTS = st.builds(
    Inputs,
    values_of(Request),
    st.builds(
        Snapshot,
        st.lists(values_of(ClusterSnapshot), max_size=3, unique_by=lambda c: c.name).map(tuple),
        st.lists(values_of(Hold), max_size=2).map(tuple),
    ),
    values_of(Policy),
    INSTANTS,
)


@few
@given(st.one_of([values_of(kind) for kind in (Request, Policy, Decision, HubView, Hold, ClusterSnapshot)]))
def test_every_value_of_the_vocabulary_comes_back_from_plain_data_as_it_was(value: object) -> None:
    codec = plain_codec(type(value))
    read = codec.decode(json.loads(json.dumps(codec.encode(value))))
    assert read == value
    assert repr(read) == repr(value), "digests are taken over reprs"


@few
@given(ANY_INPUTS)
def test_inputs_come_back_from_their_pieces_as_they_were(seen: Inputs) -> None:
    packed = Packer().pack("d1", seen)  # type: ignore[arg-type]
    read = unpacked(packed.document, dict(packed.new))
    assert read == seen
    assert repr(read) == repr(seen)


@few
@given(ANY_INPUTS, values_of(ClusterSnapshot))
def test_a_packer_that_has_seen_other_views_makes_the_same_pieces(first: Inputs, other: ClusterSnapshot) -> None:
    """Some of what it has seen comes again, and one cluster is another one: two whole inputs are more than hypothesis
    draws at once."""
    kept = tuple(cluster for cluster in first.snapshot.clusters[1:] if cluster.name != other.name)
    second = replace(first, snapshot=replace(first.snapshot, clusters=(other, *kept)))
    packer = Packer()
    packer.pack("d1", first)  # type: ignore[arg-type]
    again, alone = packer.pack("d2", second), Packer().pack("d2", second)  # type: ignore[arg-type]
    assert again == alone, "nothing was committed in between, so nothing may be left out"


@few
@given(ANY_INPUTS, INSTANTS, TEXTS)
def test_a_snapshot_file_comes_back_as_it_was_and_gives_the_same_bytes(seen: Inputs, at: object, digest: str) -> None:
    taken = TakenSnapshot(at, digest, "core-1", HubRoutes({}, {}, {}, {}), seen.snapshot)  # type: ignore[arg-type]
    content = encode_snapshot(taken)
    assert repr(decode_snapshot(content)) == repr(taken)
    assert encode_snapshot(decode_snapshot(content)) == content


async def _in_a_store(act: Callable[[SqlStore], Awaitable[None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(Path(folder) / "store.db")
        try:
            await act(store)
        finally:
            await store.close()


@examples(8)
@given(worlds(), st.lists(gangs(), min_size=1, max_size=5))
def test_what_is_stored_of_a_decision_decides_to_the_same_bytes(world: World, wanted: list[Request]) -> None:
    """A row of decisions in one second, each with the promises of those before it."""
    made: list[tuple[Decision, Inputs]] = []
    snapshot = world.snapshot
    for number, gang in enumerate([world.request, *wanted]):
        named = replace(gang, uid=f"uid-{number}", name=f"g{number}")  # type: ignore[arg-type]
        seen = Inputs(named, snapshot, world.policy, NOW)
        decision = decide(seen.request, seen.snapshot, seen.policy, seen.now)
        made.append((decision, seen))
        hold = hold_of(decision, named, world.policy, NOW)
        snapshot = snapshot.with_hold(hold) if hold is not None else snapshot

    async def act(store: SqlStore) -> None:
        for decision, seen in made:
            await store.commit(decision, None, None, seen)
        for decision, seen in made:
            record = await store.record(decision.id)
            assert record is not None
            assert record.inputs == seen
            assert repr(record.inputs.snapshot) == repr(seen.snapshot)
            again = replay(record.inputs)
            assert encode_decision(again) == encode_decision(decision)
            found = compare(record, again, replayed_digest(again))
            assert (found.verdict, found.differences) == (Verdict.SAME, ())
            assert decode_record(encode_record(record)) == record

    asyncio.run(_in_a_store(act))
