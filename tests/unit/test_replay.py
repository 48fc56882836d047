"""A replay is held against its record: what is the same, what another version may change, and what differs where."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from dispatcher.core.decide import decide
from dispatcher.core.decision import Basis, Decision, Estimate, Outcome
from dispatcher.core.ids import ClusterName, DecisionId
from dispatcher.core.plain import PlainError, plain_codec
from dispatcher.core.replay import Change, Difference, Inputs, Record, Verdict, compare, differences, replay
from dispatcher.core.snapshot import NodeView, Snapshot
from dispatcher.core.version import CODE_VERSION
from dispatcher.core.workload import PodSet, Request
from dispatcher.store import CodecError
from dispatcher.store.documents import (
    decode_record,
    decode_request,
    decode_snapshot,
    encode_record,
    encode_request,
    replayed_digest,
)
from tests.core_builders import NOW, pods, policy, request, snapshot, worker

INPUTS = Inputs(request("train"), snapshot(worker("cloud"), worker("onprem")), policy(), NOW)
DECIDED = decide(INPUTS.request, INPUTS.snapshot, INPUTS.policy, INPUTS.now)
RECORD = Record(DECIDED, replayed_digest(DECIDED), INPUTS)


def held(record: Record, replayed: Decision) -> tuple[Verdict, list[str]]:
    found = compare(record, replayed, replayed_digest(replayed))
    return found.verdict, [f"{d.path}: {d.change} {d.recorded} -> {d.replayed}" for d in found.differences]


def test_the_same_inputs_are_the_same() -> None:
    assert held(RECORD, replay(INPUTS)) == (Verdict.SAME, [])


def older(record: Record, **changes: object) -> Record:
    """The record as another version of the code would have written it."""
    decision = replace(record.decision, code_version="core-0", id=DecisionId("0000"), **changes)  # type: ignore[arg-type]
    return replace(record, decision=decision, digest=replayed_digest(decision))


def test_another_version_that_decides_the_same_is_told_and_is_no_difference() -> None:
    verdict, told = held(older(RECORD), replay(INPUTS))
    assert verdict is Verdict.SAME_ANSWER
    assert told[0].startswith("id: changed 0000 -> ")
    assert told[1:] == [f"code_version: changed core-0 -> {DECIDED.code_version}"]


def test_another_version_that_decides_differently_differs() -> None:
    verdict, told = held(older(RECORD, outcome=Outcome.WAIT, chosen=None), replay(INPUTS))
    assert verdict is Verdict.DIFFERS
    assert f"chosen: changed None -> {DECIDED.chosen}" in told


def test_the_same_version_may_not_even_change_a_digest() -> None:
    decision = replace(DECIDED, snapshot_digest="ffff")
    record = replace(RECORD, decision=decision, digest=replayed_digest(decision))
    verdict, told = held(record, replay(INPUTS))
    assert (verdict, told) == (Verdict.DIFFERS, [f"snapshot_digest: changed ffff -> {DECIDED.snapshot_digest}"])


def test_bytes_that_differ_with_equal_values_differ() -> None:
    assert held(replace(RECORD, digest="0" * 64), replay(INPUTS)) == (Verdict.DIFFERS, [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(
            lambda d: replace(d, estimate=Estimate(7200, Basis.CLASS_DEFAULT)),
            [
                Difference("estimate.duration_s", Change.CHANGED, 3600, 7200),
                Difference("estimate.basis", Change.CHANGED, "declared", "class-default"),
            ],
            id="a nested field is told by its path",
        ),
        pytest.param(
            lambda d: replace(d, candidates=d.candidates[1:]),
            [Difference("candidates[cloud]", Change.MISSING, "present", None)],
            id="a candidate less is one difference and not a shift of all others",
        ),
        pytest.param(
            lambda d: replace(d, candidates=(*d.candidates, replace(d.candidates[0], cluster=ClusterName("x")))),
            [Difference("candidates[x]", Change.EXTRA, None, "present")],
            id="a candidate more is one difference",
        ),
        pytest.param(
            lambda d: replace(d, candidates=tuple(reversed(d.candidates))),
            [Difference("candidates.order", Change.CHANGED, "cloud onprem", "onprem cloud")],
            id="the same candidates in another order",
        ),
        pytest.param(
            lambda d: replace(d, already_nominated=(ClusterName("x"),)),
            [Difference("already_nominated[0]", Change.EXTRA, None, "x")],
            id="an entry of a list without names is told by its place",
        ),
        pytest.param(
            lambda d: replace(d, chosen=None),
            [Difference("chosen", Change.CHANGED, DECIDED.chosen, None)],
            id="a value that is gone",
        ),
    ],
)
def test_a_difference_names_its_place(change: Callable[[Decision], Decision], told: list[Difference]) -> None:
    assert list(differences(DECIDED, change(DECIDED))) == told
    assert differences(DECIDED, DECIDED) == ()


# --- documents ---------------------------------------------------------------------------------------------------


def test_a_record_file_brings_everything_along_and_is_canonical() -> None:
    content = encode_record(RECORD)
    assert decode_record(content) == RECORD
    assert encode_record(decode_record(content)) == content
    assert decode_request(json.loads(content)) == INPUTS.request
    assert decode_request(json.loads(encode_request(INPUTS.request))) == INPUTS.request


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(b"{", "not JSON", id="not JSON at all"),
        pytest.param(b"[]", "not a document", id="JSON of another shape"),
        pytest.param(b'{"format": "x", "version": 1}', "format is 'x'", id="another format"),
        pytest.param(
            b'{"format": "entrepot.dev/record", "version": 2}', "version is 2; this program reads version 1", id="newer"
        ),
        pytest.param(b'{"format": "entrepot.dev/record", "version": 1}', "no 'decision'", id="a part is missing"),
        pytest.param(
            encode_record(RECORD).replace(f'"code_version":"{CODE_VERSION}"'.encode(), b'"code_version":7'),
            "code_version: a text expected, not 7",
            id="a field of another type is told by its place",
        ),
    ],
)
def test_what_is_no_record_is_refused_with_its_place(content: bytes, told: str) -> None:
    with pytest.raises(CodecError, match=told.replace("(", r"\(")):
        decode_record(content)


def test_a_record_is_no_snapshot() -> None:
    with pytest.raises(CodecError, match=r"format is 'entrepot\.dev/record', not 'entrepot\.dev/snapshot'"):
        decode_snapshot(encode_record(RECORD))


# --- plain data --------------------------------------------------------------------------------------------------

NODE = plain_codec(NodeView)


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        pytest.param({"name": "n"}, "NodeView needs field 'labels'", id="a field without a default is missing"),
        pytest.param(
            {"name": "n", "labels": [], "allocatable": {}, "colour": 1}, "no field 'colour'", id="an unknown field"
        ),
        pytest.param(
            {"name": "n", "labels": [["a", "b"], ["a", 1]], "allocatable": {}},
            "labels.1.1: a text expected, not 1",
            id="the place in a list",
        ),
        pytest.param({"name": "n", "labels": [["a"]], "allocatable": {}}, "labels.0: 2 entries", id="a short pair"),
        pytest.param({"name": "n", "labels": {}, "allocatable": {}}, "labels: a list expected", id="no list"),
        pytest.param(
            {"name": "n", "labels": [], "allocatable": {"items": [["cpu", True]]}},
            "allocatable.items.0.1: a whole number expected, not True",
            id="a truth value is no number",
        ),
    ],
)
def test_data_that_is_no_value_is_refused_with_its_place(plain: object, told: str) -> None:
    with pytest.raises(PlainError, match=told):
        NODE.decode(plain)


def test_a_field_that_an_older_version_did_not_write_takes_its_default() -> None:
    assert NODE.decode({"name": "n", "labels": [], "allocatable": {}}).ready is True


def test_an_instant_without_a_zone_names_no_instant() -> None:
    with pytest.raises(PlainError, match="no time zone"):
        plain_codec(Request).encode(replace(INPUTS.request, created_at=NOW.replace(tzinfo=None)))


def test_a_snapshot_and_a_pod_set_come_back_equal_to_the_last_repr() -> None:
    for kind, value in ((Snapshot, INPUTS.snapshot), (PodSet, pods(3))):
        codec = plain_codec(kind)
        assert repr(codec.decode(codec.encode(value))) == repr(value)
