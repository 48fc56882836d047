"""docs/doctor.md lists every finding as the code has it. Write it anew with: python -m tests.unit.test_doctor_docs"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from dispatcher.core.doctor import CATALOG
from dispatcher.core.doctor.versions import GATES, KNOWN_BUGS, version_text

DOCUMENT = Path(__file__).parents[2] / "docs" / "doctor.md"
BEGIN, END = "<!-- findings: begin -->\n", "<!-- findings: end -->\n"


def tables() -> str:
    return "\n".join([*_findings(), *_bugs(), *_gates()]) + "\n"


def _findings() -> Iterator[str]:
    for group, codes in groupby(CATALOG, key=lambda code: CATALOG[code].group):
        yield f"### {group.value}\n"
        yield "| code | severity | finding | why it matters | from | fix |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for code in codes:
            entry = CATALOG[code]
            cells = (f"`{code.value}`", entry.severity.value, entry.title, entry.why, entry.section, entry.fix)
            yield _row(*cells)
        yield ""


def _bugs() -> Iterator[str]:
    yield "### Known bugs of the hub's Kueue (`kueue-known-bug`)\n"
    yield "| upstream | from | fixed in | severity | what happens |"
    yield "| --- | --- | --- | --- | --- |"
    for bug in KNOWN_BUGS:
        fixed = ", ".join(version_text(fix) for fix in bug.fixed)
        yield _row(bug.key, version_text(bug.since), fixed, bug.severity.value, bug.what)
    yield ""


def _gates() -> Iterator[str]:
    yield "### Feature gates (`gate`)\n"
    yield "| gate | value | severity | what happens |"
    yield "| --- | --- | --- | --- |"
    for rule in GATES:
        yield _row(f"`{rule.name}`", str(rule.value).lower(), rule.severity.value, rule.why)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def renewed(document: str) -> str:
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tables()}{END}{after}"


def test_the_documented_findings_are_those_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert BEGIN in text
    assert END in text
    assert text == renewed(text), "run: python -m tests.unit.test_doctor_docs"


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
