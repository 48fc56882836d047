"""Which labels two policies may answer differently for. All others need not be judged twice: the same rules over the
same facts give the same verdicts, and most edits touch few labels."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.legality import Office, office_of
from dispatcher.core.policy import Policy
from residency.rules import Rule
from residency.sets import Membership
from residency.vocabulary import Flow

_Spoken = tuple[tuple[Rule, tuple[Membership, ...]], ...]


@dataclass(slots=True)
class Touched:
    """`everything`: the policies differ in what any verdict may depend on (facts, catalog, exceptions, tenants ...)."""

    base: Policy
    head: Policy
    everything: bool = field(init=False)
    _known: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        old, new = self.base.residency, self.head.residency
        facts = all(
            getattr(self.base, name) == getattr(self.head, name)
            for name in ("clusters", "stores", "data_sets", "queues", "classes", "products")
        )
        law = all(
            getattr(old, name) == getattr(new, name)
            for name in ("exceptions", "declassifications", "tenants", "settings")
        )
        self.everything = not (facts and law)

    def label(self, name: str) -> bool:
        """Whether a verdict on this label may differ."""
        if self.everything:
            return True
        if name not in self._known:
            self._known[name] = _spoken(office_of(self.base), name) != _spoken(office_of(self.head), name)
        return self._known[name]


def _spoken(office: Office, label: str) -> tuple[_Spoken, ...]:
    """The rules that speak of a label, by flow, with who belongs to the sets that they name."""
    return tuple(_with_sets(office, tuple(one.rule for one in office.law.rules_for(label, flow))) for flow in Flow)


def _with_sets(office: Office, rules: tuple[Rule, ...]) -> _Spoken:
    return tuple((rule, tuple(office.law.sets[name] for name in sorted(_sets(rule, office)))) for rule in rules)


def _sets(rule: Rule, office: Office) -> set[str]:
    named = {name for group in rule.when for clause in group.clauses for name in clause.sets()}
    named |= {value[1:] for duty in rule.obligations for value in duty.countries if value.startswith("@")}
    return named & set(office.law.sets)
