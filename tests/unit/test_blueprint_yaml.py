"""The strict YAML reader: what was written is what is read, and no file can hurt the daemon."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.config.files import Content
from dispatcher.config.loader import load_content
from dispatcher.config.strictyaml import MAX_BYTES, Mapping, parse, plain
from tests.examples import examples
from tests.unit.blueprint_files import NOW, SMALL, R, edited, load, texts


def read(text: str | bytes) -> object:
    root, problems = parse("x.yaml", text.encode() if isinstance(text, str) else text)
    assert problems == []
    assert root is not None
    return plain(root)


def complaints(text: str | bytes) -> list[str]:
    _, problems = parse("x.yaml", text.encode() if isinstance(text, str) else text)
    return [problem.text() for problem in problems]


LITERALS = [
    pytest.param("NO", id="Norway is not false"),
    pytest.param("on", id="on is not true"),
    pytest.param("yes", id="yes is not true"),
    pytest.param("22:00", id="a time of day is not 1320 minutes"),
    pytest.param("010", id="a leading zero makes no octal number"),
    pytest.param("0x10", id="no hexadecimal number"),
    pytest.param("1_000", id="underscores make no number"),
    pytest.param("2026-11-30", id="a date stays text"),
    pytest.param(".inf", id="no infinity"),
    pytest.param(".nan", id="no NaN can enter a price"),
    pytest.param("1e3", id="no float"),
    pytest.param("=", id="the value key of YAML 1.1"),
]


@pytest.mark.parametrize("word", LITERALS)
def test_a_scalar_stays_the_text_that_was_written(word: str) -> None:
    assert read(f"key: {word}\n") == {"key": word}


def test_fr_cfg_03_norway_is_a_country_unquoted_and_quoted(tmp_path: Path) -> None:
    assert read("allow: [NO, SE]\n") == {"allow": ["NO", "SE"]}
    result = load(tmp_path, edited(R, 'in: "@eu"', "in: [NO, 'NO', SE, FI, DE]"))
    assert texts(result) == []
    assert result.policy is not None
    rule = next(rule for rule in result.policy.residency.rules if rule.id == "personal")
    assert rule.when[0].clauses[0].values == ("DE", "FI", "NO", "SE")


def test_norway_as_a_key_is_text(tmp_path: Path) -> None:
    assert read("NO: 1\non: 2\n") == {"NO": "1", "on": "2"}


BROKEN = [
    pytest.param("", "x.yaml:1:1: error: the file is empty; write the file's keys", id="an empty file"),
    pytest.param("# only a comment\n\n", "x.yaml:1:1: error: the file is empty; write the file's keys", id="a comment"),
    pytest.param(
        "a: 1\nb: caf\xe9".encode("latin-1"),
        "x.yaml:2:7: error: '0xe9': not UTF-8; save the file as UTF-8",
        id="another encoding",
    ),
    pytest.param("a: 1".encode("utf-16"), "x.yaml:1:1: error: '0xff': not UTF-8; save the file as UTF-8", id="UTF-16"),
    pytest.param("a: 1\nb: \0\n", "x.yaml:2:4: error: '0x00': a control character; remove it", id="a NUL"),
    pytest.param(
        "a:\n\tb: 1\n",
        "x.yaml:2:1: error: a tab in the indentation (found character '\\t' that cannot start "
        "any token (while scanning for the next token)); indent with spaces",
        id="a tab",
    ),
    pytest.param(
        "a: 1\na: 2\n",
        "x.yaml:2:1: error: 'a': the key is there twice, first on line 1; remove or rename one of them",
        id="a key twice",
    ),
    pytest.param(
        "a: {b: 1, b: 2}\n",
        "x.yaml:1:11: error: 'b': the key is there twice, first on line 1; remove or rename one of them",
        id="a key twice within braces",
    ),
    pytest.param(
        "a: !!python/object:os.system {}\n",
        "x.yaml:1:4: error: 'tag:yaml.org,2002:python/object:os.system': tags are not read; remove the tag",
        id="a tag that would run code elsewhere",
    ),
    pytest.param("a: !secret x\n", "x.yaml:1:4: error: '!secret': tags are not read; remove the tag", id="a local tag"),
    pytest.param(
        "a: &x {c: 1}\nb: {<<: *x}\n",
        "x.yaml:2:5: error: '<<': merge keys are not read; write the keys out",
        id="a merge key",
    ),
    pytest.param("a: *x\n", "x.yaml:1:4: error: '*x': an alias to nothing; define &x above it", id="a dangling alias"),
    pytest.param(
        "a: &x [*x]\n",
        "x.yaml:1:8: error: '*x': an alias to something that contains it; write the value out",
        id="an alias within itself",
    ),
    pytest.param(
        "a: 1\n---\nb: 2\n",
        "x.yaml:2:1: error: a second document; keep one document in a file: remove the '---'",
        id="two documents",
    ),
    pytest.param(
        "? [a, b]\n: 1\n", "x.yaml:1:3: error: a key must be one word; write 'key: value'", id="a list as key"
    ),
    pytest.param(
        "a: [1, 2\nb: 3\n",
        "x.yaml:2:2: error: not YAML: expected ',' or ']', but got ':' (while parsing a flow "
        "sequence); check the indentation, colons and quotes around here",
        id="a bracket left open",
    ),
    pytest.param(
        "a: " + "[" * 40 + "]" * 40, "x.yaml:1:27: error: nested deeper than 24 levels; flatten it", id="forty levels"
    ),
]


@pytest.mark.parametrize(("text", "expected"), BROKEN)
def test_what_is_not_plain_yaml_is_refused_with_its_place(text: str | bytes, expected: str) -> None:
    assert complaints(text) == [expected]


def test_every_duplicate_of_a_file_is_reported() -> None:
    assert len(complaints("a: 1\na: 2\nb: {c: 1, c: 2}\nb: 3\n")) == 3


def test_the_first_of_two_equal_keys_is_read_on_so_that_the_rest_is_checked_too() -> None:
    root, problems = parse("x.yaml", b"a: 1\na: 2\n? [k]\n: 3\nb: 4\n")
    assert len(problems) == 2
    assert root is not None
    assert plain(root) == {"a": "1", "b": "4"}


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert read(b"\xef\xbb\xbfa: 1\n") == {"a": "1"}


def test_an_alias_stands_for_what_it_points_to() -> None:
    assert read("a: &x {k: [1, 2]}\nb: *x\n") == {"a": {"k": ["1", "2"]}, "b": {"k": ["1", "2"]}}


def test_a_billion_laughs_are_counted_and_not_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    (complaint,) = complaints("\n".join(lines))
    assert "more than 50000 values with aliases expanded" in complaint


def test_aliases_cannot_nest_deeper_than_brackets_may() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 3000)]
    (complaint,) = complaints("\n".join(lines))
    assert "nested deeper than 24 levels" in complaint


def test_a_file_of_five_megabytes_is_refused_without_being_parsed(tmp_path: Path) -> None:
    result = load(tmp_path, {**SMALL, "data.yaml": b"a: [1]\n" * 750_000})
    assert texts(result) == [
        f"data.yaml:1:1: error: the file has more than the {MAX_BYTES} bytes allowed; split or shorten it"
    ]


@given(st.binary(max_size=400))
@examples(150)
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    root, problems = parse("x.yaml", data)
    assert root is not None or problems


_PIECES = st.sampled_from(
    [
        "a",
        ": ",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        '"',
        "&x ",
        "*x",
        "!t ",
        "|",
        ">",
        "#",
        "? ",
        "---\n",
        "%YAML 9.9\n",
        "\\x",
        "\t",
        "~",
        "é",
        "\u2028",
        "clusters",
        "queues",
        "0",
    ]
)


@given(st.lists(_PIECES, max_size=60).map("".join))
@examples(200)
def test_no_arrangement_of_yaml_marks_crashes_the_reader(text: str) -> None:
    root, problems = parse("x.yaml", text.encode())
    assert root is not None or problems
    assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)


@given(st.sampled_from(sorted(SMALL)), st.data())
@examples(30)
def test_no_damage_to_a_blueprint_crashes_the_loader(name: str, data: st.DataObject) -> None:
    text = SMALL[name]
    at = data.draw(st.integers(0, len(text)))
    end = min(len(text), at + data.draw(st.integers(0, 30)))
    files = {**SMALL, name: text[:at] + data.draw(st.lists(_PIECES, max_size=6).map("".join)) + text[end:]}
    content = Content(tuple((file, body.encode()) for file, body in sorted(files.items())), (), ())
    result = load_content(content, Path("blueprint"), NOW)
    assert (result.policy is None) == bool(result.errors)


def test_of_a_file_that_is_edited_again_and_again_only_the_newest_tree_is_kept() -> None:
    """A daemon lives through a year of edits; what has not changed is not read again."""
    gc.collect()
    before = sum(isinstance(found, Mapping) for found in gc.get_objects())
    first, _ = parse("same.yaml", b"a: {b: {c: d}}")
    for edit in range(50):
        parse("edited.yaml", f"a: {{b: {{c: {edit}}}}}".encode())
    gc.collect()
    assert sum(isinstance(found, Mapping) for found in gc.get_objects()) <= before + 6
    assert parse("same.yaml", b"a: {b: {c: d}}")[0] is first
