"""The line splitter and the cache: small, pure, and where watches go wrong first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kubernetes.cache import Cache, Part
from connectors.kubernetes.lines import LINE_LIMIT, LineSplitter

KEY = ("team-a", "job-1")


@given(st.lists(st.text(max_size=20).map(lambda t: t.replace("\n", "").replace("\r", "").strip())), st.data())
def test_any_cut_into_chunks_gives_the_same_lines(texts: list[str], data: st.DataObject) -> None:
    stream = b"".join(text.encode() + b"\n" for text in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter, found = LineSplitter(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += splitter.feed(stream[start:end])
    assert [line.decode() for line in found] == [
        text.encode().strip().decode() for text in texts if text.encode().strip()
    ]


def test_fr_wat_06_a_line_of_1_6_mib_in_7_chunks_comes_out_whole() -> None:
    line = "ä".encode() * 838_861
    size = len(line) // 7 + 1
    splitter, found = LineSplitter(), []
    for start in range(0, len(line), size):
        found += splitter.feed(line[start : start + size])
    assert found == []
    assert splitter.feed(b"\nrest") == [line]


def test_a_line_over_the_limit_is_skipped_to_its_end_and_counted() -> None:
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"0123456789a") == []
    assert splitter.feed(b"bcdef\nnext\n") == [b"next"]
    assert splitter.overlong == 1
    assert LINE_LIMIT >= 3 << 20


@pytest.mark.parametrize(
    ("late_version", "kept"),
    [(11, "new"), (12, "new"), (13, "late")],
    ids=["an older reply is refused", "the same version changes nothing", "a newer one is taken"],
)
def test_fr_wat_07_a_late_reply_cannot_turn_the_cache_back(late_version: int, kept: str) -> None:
    cache: Cache[str] = Cache()
    cache.put(KEY, 12, "new")
    cache.put(KEY, late_version, "late")
    assert cache.get(KEY) == kept


def test_fr_wat_07_a_deleted_object_does_not_come_back_by_a_late_reply() -> None:
    cache: Cache[str] = Cache()
    cache.put(KEY, 12, "here")
    assert cache.remove(KEY, 15)
    assert not cache.put(KEY, 14, "ghost")
    assert cache.get(KEY) is None
    assert cache.put(KEY, 16, "made again")
    assert not cache.remove(KEY, 15), "the deletion of its predecessor"
    assert cache.get(KEY) == "made again"


def test_fr_wat_04_what_a_list_does_not_have_is_gone_unless_it_is_newer_than_the_list() -> None:
    cache: Cache[str] = Cache()
    cache.put(("", "old"), 10, "old")
    cache.put(("", "stays"), 11, "stays")
    cache.put(("", "newer"), 30, "newer")
    assert cache.replace({("", "stays"): (11, "stays"), ("", "born"): (20, "born")}, 25)
    assert [key for key, _ in cache.items()] == [("", "born"), ("", "newer"), ("", "stays")]


def test_a_list_that_says_nothing_new_is_no_change() -> None:
    cache: Cache[str] = Cache()
    cache.put(KEY, 12, "same")
    before = cache.revision
    assert not cache.replace({KEY: (13, "same")}, 20)
    assert cache.revision == before


def test_a_restart_takes_lower_versions_because_the_store_is_another() -> None:
    cache: Cache[str] = Cache()
    cache.put(KEY, 900, "before the restore")
    assert cache.restart({KEY: (5, "after")})
    assert cache.get(KEY) == "after"
    assert cache.newest == 5


@given(st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.integers(1, 30))))
def test_the_version_held_for_a_key_never_falls(steps: list[tuple[str, int]]) -> None:
    cache: Cache[int] = Cache()
    last = 0
    for step, version in steps:
        if step == "put":
            cache.put(KEY, version, version)
        else:
            cache.remove(KEY, version)
        held = cache.get(KEY)
        if held is not None:
            assert held >= last
            last = held


def test_a_part_of_a_view_is_built_once_for_each_revision() -> None:
    cache: Cache[str] = Cache()
    built: list[int] = []
    part = Part(lambda: built.append(cache.revision) or len(built), lambda: cache.revision)
    assert [part.get(), part.get()] == [1, 1]
    cache.put(KEY, 1, "x")
    assert [part.get(), part.get()] == [2, 2]
