"""One finding: a code, where, what was seen, and the fix with its real names filled in."""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.doctor.catalog import CATALOG
from dispatcher.core.doctor.codes import RANK, Code, Entry, Group, Severity


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """An object of a cluster (`cluster` is "hub" or a worker), or a place in a file ("fleet.yaml:12:3")."""

    cluster: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    place: str = ""

    def text(self) -> str:
        if self.place:
            return self.place
        named = f"{self.namespace}/{self.name}" if self.namespace and self.name else self.namespace or self.name
        thing = f"{self.kind} {named}".strip()
        return f"{self.cluster}: {thing}" if self.cluster and thing else self.cluster or thing


@dataclass(frozen=True, slots=True)
class Finding:
    """`severity`, `why` and `section` come from the catalogue unless the finding knows better."""

    code: Code
    where: Where
    seen: str
    fix: str = ""
    severity: Severity = Severity.ERROR
    why: str = ""
    section: str = ""

    @property
    def group(self) -> Group:
        return CATALOG[self.code].group

    @property
    def title(self) -> str:
        return CATALOG[self.code].title


def found(code: Code, where: Where, seen: str, fix: str = "") -> Finding:
    """A finding as the catalogue describes it; `fix` replaces the general one by a command that can be run."""
    entry = CATALOG[code]
    return Finding(code, where, seen, fix or entry.fix, entry.severity, entry.why, entry.section)


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """By group, then the worst first, then by place: the order in which a person mends them. No doubles."""
    groups = list(Group)
    unique = {(f.code, f.where, f.seen): f for f in findings}
    return tuple(
        sorted(unique.values(), key=lambda f: (groups.index(f.group), RANK[f.severity], f.code, f.where, f.seen))
    )


__all__ = ["CATALOG", "Code", "Entry", "Finding", "Group", "Severity", "Where", "found", "in_order"]
