"""What rules that do not rule would do: a candidate bundle beside the live one, and live rules that are only on trial.

Everything here is "would have": no decision reads it. The candidate's answers are those of the same comparison that a
preview makes (`impact.py`), so that what a pull request showed and what shadowing shows are one thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dispatcher.core.ids import WorkloadUid
from dispatcher.core.impact import Change, Comparison, Counsel
from dispatcher.core.legality import law_window
from dispatcher.core.policy import Policy
from dispatcher.core.work import Work
from residency.vocabulary import Mode


@dataclass(frozen=True, slots=True)
class OnTrial:
    """A rule of the live bundle in mode warn or shadow that would have denied something of a workload."""

    rule: str
    mode: Mode
    clause: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Beside:
    """What shadowing says of one workload: `change` by the candidate bundle (None: nothing), `trials` by live rules."""

    work: Work
    change: Change | None
    trials: tuple[OnTrial, ...]


@dataclass(frozen=True, slots=True)
class ShadowStatus:
    """The newest look. `candidate` is the digest of the candidate's rules ("" without one), `errors` why its newest
    edit is not used, `failures` how often a look has failed since the start."""

    candidate: str = ""
    loaded_at: datetime | None = None
    errors: tuple[str, ...] = ()
    looked_at: int = 0
    beside: tuple[Beside, ...] = ()
    failures: int = 0


@dataclass(slots=True)
class Mirror:
    """Live and candidate rules side by side, for as long as the answers of both hold. Saves time, changes no answer."""

    live: Policy
    candidate: Policy | None
    now: datetime
    _counsel: Counsel = field(init=False)
    _comparison: Comparison | None = field(init=False)

    def __post_init__(self) -> None:
        self._counsel = Counsel(self.live, self.now)
        self._comparison = None
        if self.candidate is not None:
            self._comparison = Comparison(self.live, self.candidate, self.now)

    def serves(self, live: Policy, candidate: Policy | None, now: datetime) -> bool:
        """Whether it may still be asked: the same rules, and no instant has passed at which an answer changes."""
        if live is not self.live or candidate is not self.candidate:
            return False
        both = (live,) if candidate is None else (live, candidate)
        return all(law_window(policy, now) == law_window(policy, self.now) for policy in both)

    def beside(self, work: Work) -> Beside:
        change = self._comparison.change(work) if self._comparison is not None else None
        return Beside(work, change, self._trials(work))

    def _trials(self, work: Work) -> tuple[OnTrial, ...]:
        """Of where it stands; of what waits, of everywhere it may go and is let."""
        request = work.request
        shape = self._counsel.shape(request)
        places = work.places or tuple((name, ()) for name in request.listed_clusters)
        found: dict[str, OnTrial] = {}
        for name, flavors in places:
            ruling = self._counsel.ruling(request, shape, name, flavors)
            if ruling is None or not ruling.allowed:
                continue
            for one in ruling.would:
                found.setdefault(one.rule, OnTrial(one.rule, one.mode, one.clause, str(one.at)))
        return tuple(found[name] for name in sorted(found))


Difference = tuple[WorkloadUid, str, str]
"""Workload, what would happen to it, and by which rule: counted and logged once under one candidate."""


def differences(one: Beside) -> tuple[Difference, ...]:
    """What shadowing found of a workload, each thing once."""
    uid = one.work.request.uid
    found: list[Difference] = [(uid, f"would-deny-{trial.mode.value}", trial.rule) for trial in one.trials]
    if one.change is not None:
        turns = (*one.change.stands, *one.change.closed, *one.change.opened)
        rule = next((t.because.because.rule for t in turns if t.because is not None and t.because.because.rule), "")
        found += [(uid, effect.value, rule) for effect in one.change.effects]
    return tuple(found)
