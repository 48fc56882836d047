"""Both YAML parsers read alike: what the fast one accepts is, place by place, what the plain one would have read."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.config import strictyaml
from dispatcher.config.strictyaml import Mapping, Node, Scalar, parse
from tests.examples import examples

SIGNS = (": ", ":", "- ", "? ", "[", "]", "{", "}", ", ", ",", "#", " #c", "'", '"', "|", ">", "|-", ">+", "|2")
NAMES = ("a", "b", "0", "&x ", "*x", "!", "!t ", "%", "@", "`", "~", "\\", "é", ".", "---\n", "...\n")
SPACES = (" ", "  ", "\n", "\n  ", "\n- ", "\t", "\r\n", "\x85", "\u2028", "\ufeff")
LINES = ("key: value\n", "list:\n", "  - one\n", "text: |\n  two\n\n")
PIECES = st.sampled_from((*SIGNS, *NAMES, *SPACES, *LINES))
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def places(node: Node | None) -> object:
    """A tree with every mark, as a value that compares by content."""
    if node is None:
        return None
    if isinstance(node, Scalar):
        return node.mark, node.text, node.quoted
    if isinstance(node, Mapping):
        return node.mark, [(key, mark, places(value)) for key, (mark, value) in node.entries.items()]
    return node.mark, [places(item) for item in node.items]


@pytest.mark.skipif(strictyaml._FAST is None, reason="PyYAML was built without libyaml")
@given(TEXTS)
@example("a: 'x'\nb: [1, {c: \"d\"}]\nc: |\n  e\n\n  f\n")
@example("a:\tb\n")
@example("a: |#\n  b\n")
@example("a: {b: , c: 1}\n")
@example("? a\n")
@examples(600)
def test_what_the_fast_parser_accepts_the_plain_one_reads_with_the_same_places(text: str) -> None:
    file, data = "x.yaml", text.encode()
    decoded, refused = strictyaml._decode(file, data)
    if refused is not None:
        return
    found, plain = parse(file, data), strictyaml._built(strictyaml._Builder(file), decoded, yaml.SafeLoader)
    assert found[1] == plain[1]
    assert places(found[0]) == places(plain[0])
