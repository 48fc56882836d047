"""What makes two waits the same wait for a person: then it is neither recorded nor told once more."""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.decision import NO_ROOM, Candidate, Decision, Reason

SHARED_REASONS = 256
"""So many kinds of requests wait at once before their reasons are worked out anew now and then. Each keeps a record of
every cluster alive, some kilobytes a cluster, long after its last request has gone."""
_ROOM = NO_ROOM | {Reason.RESERVED, Reason.WORTH_WAITING}


@dataclass(slots=True)
class Told:
    """Remembers what candidates that many requests share are to a person; by identity, since they are kept here."""

    _shared: dict[int, tuple[tuple[Candidate, ...], object]] = field(default_factory=dict)

    def of(self, decision: Decision) -> object:
        """The outcome and what lasts of the reasons per cluster. That there is no room comes and goes: it counts where
        nothing else stands in the way, and neither amounts nor whether the room is used, promised or in pieces."""
        candidates = decision.candidates
        known = self._shared.get(id(candidates))
        if known is None or known[0] is not candidates:
            if len(self._shared) >= SHARED_REASONS:
                self._shared.clear()
            reasons = tuple(
                (c.cluster, bool(c.rejections), tuple(r.reason for r in c.rejections if r.reason not in _ROOM))
                for c in candidates
            )
            known = self._shared[id(candidates)] = (candidates, reasons)
        return (decision.outcome, decision.policy_digest, decision.kept and decision.kept.reason, known[1])
