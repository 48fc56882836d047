"""Words that people read at every edge: what may have been meant, and what is wrong with a value's shape."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from connectors.kubernetes.kubeconfig import BadKubeconfig, parse
from dispatcher.cli.main import run
from dispatcher.config.data_file import DataFile
from dispatcher.config.fleet_file import FleetFile
from dispatcher.config.prices_file import PricesFile
from dispatcher.config.queues_file import QueuesFile
from dispatcher.config.reading import validate
from dispatcher.config.residency.model import ResidencyFile
from dispatcher.config.residency.testing_model import RuleTestFile
from dispatcher.config.strictyaml import Mapping, Node, Sequence
from dispatcher.config.strictyaml import parse as parse_yaml
from dispatcher.core.explain_shapes import place_text, shape_text, words_of
from dispatcher.core.nearness import nearest
from dispatcher.store.codec import CodecError, decode_hold

CONFIG = Path(__file__).parents[2] / "config"
CHECKERS_WORDS = re.compile(
    r"Input should|Value error|Field required|should match pattern|unable to parse|valid (string|integer|list|dict)"
    r"|Extra inputs|pydantic|validation error|Assertion failed",
    re.IGNORECASE,
)
JOBS = (
    *("bev-pretrain", "cad-fit", "foundation-xl", "lane-finetune", "notebook-curves", "notebook-maps", "rl-excavator"),
    *("rl-loader", "segmenter", "sweep-rain", "sweep-snow", "world-model"),
)


# --- what may have been meant ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "near"),
    [
        pytest.param("world-modle", ("world-model",), id="a slip"),
        pytest.param("worldmodel", ("world-model",), id="a separator less, and not what shares some letters"),
        pytest.param("SEGMENTER", ("segmenter",), id="another case"),
        pytest.param("foundation", ("foundation-xl",), id="a part"),
        pytest.param("rl", ("rl-loader", "rl-excavator"), id="a whole part of two letters"),
        pytest.param("job-world-model", ("world-model",), id="more than the name"),
        pytest.param("notebook", ("notebook-maps", "notebook-curves"), id="a part of several"),
        pytest.param("sweep-rian", ("sweep-rain",), id="a slip of one, and not its neighbours"),
        pytest.param("train", ("bev-pretrain",), id="a part inside a word"),
        pytest.param("job", (), id="what is in none"),
        pytest.param("xl5", (), id="what only begins like a part"),
        pytest.param("", (), id="nothing"),
    ],
)
def test_only_names_are_suggested_that_a_person_would_see(word: str, near: tuple[str, ...]) -> None:
    assert nearest(word, JOBS, 5) == near


def test_suggestions_are_bounded_and_do_not_depend_on_the_order_of_names() -> None:
    names = [f"train-{n}" for n in range(9)]
    assert len(nearest("train", names)) == 3
    assert nearest("train", names) == nearest("train", reversed(names))


# --- shapes ------------------------------------------------------------------------------------------------------


class Shape(BaseModel):
    number: int
    many: tuple[str, ...]
    inner: dict[str, bool]


def test_a_place_is_written_as_people_write_it() -> None:
    assert place_text(("items", 0, "turn")) == "items[0].turn"
    assert words_of("'waiting', 'held' or 'gone'") == ("waiting", "held", "gone")


def test_a_kind_that_is_not_known_still_has_words() -> None:
    assert shape_text("something_of_a_later_version", {}) == "something else is expected here"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"number": "x", "many": [], "inner": {}}, ["number: a whole number is expected"]),
        (
            {"number": 1, "many": "x", "inner": {"a": 7}},
            ["many: a list is expected", "inner.a: true or false is expected"],
        ),
        (
            {"many": [1], "inner": []},
            ["number: it is missing", "many[0]: a text is expected", "inner: a mapping of keys is expected"],
        ),
    ],
)
def test_what_a_checker_finds_is_said_in_our_words(data: dict[str, object], told: list[str]) -> None:
    with pytest.raises(ValidationError) as raised:
        Shape.model_validate(data)
    faults = raised.value.errors(include_url=False)
    assert [f"{place_text(f['loc'])}: {shape_text(f['type'], f.get('ctx', {}))}" for f in faults] == told


# --- where checkers speak ----------------------------------------------------------------------------------------

ODD = ("odd value", "-1", "[]", "{odd: value}", "")
FILES: dict[str, type[BaseModel]] = {
    "fleet.yaml": FleetFile,
    "queues.yaml": QueuesFile,
    "data.yaml": DataFile,
    "prices.yaml": PricesFile,
    "residency/personal.yaml": ResidencyFile,
    "residency/tenants.yaml": ResidencyFile,
    "residency/personal.test.yaml": RuleTestFile,
}


def node_of(text: str) -> Node:
    root, _ = parse_yaml("x.yaml", f"x: {text}\n".encode())
    assert isinstance(root, Mapping)
    return root.entries["x"][1]


def made_odd(node: Node, seen: set[str], place: str = "") -> Iterator[str]:
    """One value after the other is something odd, once for each kind of place; tells which."""
    odd = [node_of(text) for text in ODD]
    if isinstance(node, Mapping):
        for key, (mark, value) in list(node.entries.items()):
            here = f"{place}.{key}"
            if here not in seen:
                seen.add(here)
                for each in odd:
                    node.entries[key] = (mark, each)
                    yield here
                node.entries[key] = (mark, value)
                yield from made_odd(value, seen, here)
    if isinstance(node, Sequence):
        for index, value in enumerate(list(node.items)):
            if f"{place}[]" not in seen:
                seen.add(f"{place}[]")
                for each in odd:
                    node.items[index] = each
                    yield f"{place}[]"
                node.items[index] = value
            yield from made_odd(value, seen, f"{place}[]")


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_no_odd_value_in_a_file_is_told_in_the_checkers_words(name: str) -> None:
    read, _ = parse_yaml(name, (CONFIG / name).read_bytes())
    assert read is not None
    root = copy.deepcopy(read)  # the reader remembers its trees
    told = [
        f"{place}: {problem.text()}"
        for place in made_odd(root, set())
        for problem in validate(FILES[name], name, root).problems
    ]
    assert len(told) > 20
    assert [text for text in told if CHECKERS_WORDS.search(text) or "something else is expected" in text] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("queue", "--state", "runing"), "'runing' is not one of waiting, held, "),
        (("queue", "--limit", "x"), "'x': a whole number is expected"),
        (("queue", "--limit", "0"), "'0': at least 1 is expected"),
        (("why", "a", "-o", "xml"), "'xml' is not one of table, wide, json, yaml"),
        (("serve", "--speed", "fast"), "'fast': a number is expected"),
        (("decisions", "--outcome", "add-on"), "'add-on' is not one of nominate, add, wait"),
        (("policy", "diff", "a", "b", "--fail-on", "wide"), "'wide' is not one of widened, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_bad_value_of_an_option_is_told_in_our_words(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert CHECKERS_WORDS.search(error) is None


def test_a_value_that_was_nearly_right_is_told_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    run(["queue", "--state", "runing"])
    assert "fix:   did you mean running? see: entrepot queue --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [b"clusters: 7\n", b"- a\n", b"users: [{name: [x]}]\n", b"contexts: [{context: {cluster: a}}]\n"],
)
def test_a_malformed_kubeconfig_is_told_in_our_words(content: bytes) -> None:
    with pytest.raises(BadKubeconfig) as raised:
        parse(content)
    assert CHECKERS_WORDS.search(str(raised.value)) is None


@pytest.mark.parametrize("document", [b"", b"[]", b'{"cluster": 7}', b'{"usage": {}}'])
def test_a_record_that_does_not_read_is_told_in_our_words(document: bytes) -> None:
    with pytest.raises(CodecError) as raised:
        decode_hold(document)
    assert CHECKERS_WORDS.search(str(raised.value)) is None
