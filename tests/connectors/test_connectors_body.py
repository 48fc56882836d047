"""A list read an object at a time says what the whole of it says; and long work lets the event loop come round."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kubernetes.body import Page
from connectors.kubernetes.turns import Turns
from dispatcher.core.errors import Transient

VALUES = st.recursive(st.text(max_size=6) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
NAMES = st.text(max_size=4) | st.sampled_from(["metadata", "continue", "items"])
ITEMS = st.lists(st.dictionaries(NAMES, VALUES | st.just({"continue": "an object's"}), max_size=3), max_size=4)
LAYOUTS = st.fixed_dictionaries(
    {"items": ITEMS | st.none() | st.just({}), "metadata": st.dictionaries(NAMES, st.text(), max_size=3)},
    optional={"kind": st.text(), "odd": ITEMS, "apiVersion": st.just("v1")},
)


@given(
    LAYOUTS.flatmap(lambda whole: st.permutations(sorted(whole.items()))), st.sampled_from([None, 0, 2]), st.booleans()
)
def test_a_page_says_what_the_whole_answer_says(
    members: list[tuple[str, object]], indent: int | None, ascii_only: bool
) -> None:
    whole = dict(members)
    page = Page(json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass"), "there")
    ahead = page.next_token()
    assert list(page.items()) == (whole["items"] if isinstance(whole["items"], list) else [])
    assert page.metadata == whole["metadata"]
    assert ahead in ("", page.metadata.get("continue"))


OWN, OTHER = '"metadata":{"continue":"next","resourceVersion":"7"}', '{"metadata":{"continue":"an object\'s"}}'


@pytest.mark.parametrize(
    ("body", "token"),
    [
        pytest.param(f'{{"kind":"List",{OWN},"items":[{OTHER}]}}', "next", id="the-api-own-kinds-have-it-first"),
        pytest.param(f'{{"items":[{OTHER}],"kind":"List",{OWN}}}', "next", id="custom-resources-have-it-last"),
        pytest.param(f'{{"items":[{OTHER}],{OWN},"z":[{OTHER}]}}', "", id="elsewhere-it-is-told-in-time"),
        pytest.param(f'{{"a":[{OTHER}],"items":[],{OWN}}}', "next", id="what-stands-before-the-items-may-be-an-object"),
        pytest.param(f'{{"items":[{OTHER}]}}', "", id="what-stands-at-the-end-may-be-an-object"),
        pytest.param('{"kind":"metadata","items":[],"metadata":{}}', "", id="the-last-page"),
        pytest.param('{"items":[],"metadata":', "", id="half-an-answer"),
    ],
)
def test_the_next_page_can_be_asked_for_before_this_one_is_read(body: str, token: str) -> None:
    assert Page(body.encode(), "there").next_token() == token


def test_what_is_no_object_in_a_list_is_left_out() -> None:
    page = Page(b' {"items": [1, {"a": 1}, null, [], {"b": 2}] , "metadata": 7 } \n', "there")
    assert (list(page.items()), page.metadata) == ([{"a": 1}, {"b": 2}], {})


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"[]",
            b"{",
            b'{"items": [',
            b'{"items": [{}',
            b'{"items": [{}]',
            b'{"items": [{},]}',
            b'{"items" [{}]}',
        ),
        *(b'{"items": [{}]} and more', b'{"items": [{} {}]}', b'{"metadata": }', b'{"metadata": {}, }', b"\xff{}"),
    ],
)
def test_half_an_answer_is_none(body: bytes) -> None:
    with pytest.raises(Transient, match="there: the answer is not a JSON object"):
        list(Page(body, "there").items())


async def test_between_two_turns_everything_else_comes_round() -> None:
    turns, seen = Turns(), list[str]()

    async def works(name: str) -> None:
        await turns.take()
        seen.append(name)

    async def others() -> None:
        for _ in range(12):
            seen.append("-")
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(works(name))
        group.create_task(others())
    told = "".join(seen).strip("-")
    assert [letter for letter in told if letter != "-"] == ["a", "b", "c"]
    assert not any(pair in told for pair in ("ab", "bc"))
