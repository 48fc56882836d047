"""The rules that a daemon may rule by: the blueprint's folder behind the gate of trust.

Swapped as a whole, or the last good one stays. At the start there may be no good one: then there are no rules, and the
daemon runs on without them, so that people can ask it why nothing starts; what runs is left alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dispatcher.config import BlueprintWatcher, LoadResult
from dispatcher.config.catalog import Answer
from dispatcher.config.loader import load_content
from dispatcher.config.residency.kept import last_good, packed
from dispatcher.config.residency.trust import Known, TrustGate, TrustSettings
from dispatcher.core.policy import Policy
from dispatcher.core.ports import Clock
from dispatcher.core.replicas import Replica, without
from dispatcher.core.seal import PUBLIC, Seal
from dispatcher.logs import get_logger
from dispatcher.store.audit import BundleRecord
from residency.bundle import NO_LAW, Bundle, bundle_of
from residency.rules import Rule
from residency.vocabulary import Effect, Flow

Texts = tuple[str, ...]
PUBLIC_GOES_ON = bundle_of(Bundle(rules=(Rule("public-goes-on", (PUBLIC,), tuple(sorted(Flow)), Effect.PERMIT),)))
"""What rules where no bundle may and the daemon was told to let public data go."""


def known_of(record: BundleRecord, *, trust_clock: bool = False) -> Known:
    """What the store says of earlier bundles. `trust_clock`: the clock is right, whatever was recorded before."""
    newest = None if trust_clock else record.newest_at
    return Known(record.serial, record.tree, record.unsigned, newest)


def without_rules(policy: Policy, seal: Seal) -> Policy:
    """The policy of a blueprint that may not rule: its clusters and queues are seen, and nothing is permitted."""
    law = PUBLIC_GOES_ON if seal.public_goes_on else NO_LAW
    digest = hashlib.sha256(f"{policy.digest}/{law.digest}".encode()).hexdigest()[: len(policy.digest)]
    return replace(policy, digest=digest, residency=law, seal=seal)


@dataclass(slots=True)
class WatchedFolder:
    """The blueprint folder as a PolicySource: file reads happen in a thread, results are policies or texts.

    What the gate refuses is shown to it again at each look, since time and keys pass without an edit; it is told again
    only when the answer is another one.
    """

    folder: Path
    clock: Clock
    first: LoadResult
    gate: TrustGate = field(default_factory=TrustGate)
    catalog: Callable[[], Answer | None] = lambda: None
    """What the endpoint of the data sets last answered, where the blueprint names one."""
    missing: Callable[[], tuple[Replica, ...]] = tuple
    """Replicas that are certainly not where the blueprint says: no sources in the policy that this gives."""
    _whole: Policy | None = None
    """The policy in force with all of its replicas."""
    _left_out: tuple[Replica, ...] = ()
    _watcher: BlueprintWatcher = field(init=False)
    _refused: tuple[LoadResult, Texts] | None = None
    _untold: bool = False
    _ruling: LoadResult | None = None

    def __post_init__(self) -> None:
        self._watcher = BlueprintWatcher(self.folder, self.first)

    def begin(self, policy: Policy, known: Known, kept: bytes | None = None) -> Policy:
        """The policy to start with: that of `first` if it may rule, else the last that ruled, which the store has
        `kept`, if that may still; else one without rules."""
        self.gate.known = known
        self._whole = self._begin(policy, kept)
        return self._whole

    def _begin(self, policy: Policy, kept: bytes | None) -> Policy:
        found = self._judged(self.first, policy)
        if isinstance(found, Policy):
            return found
        self._refused, self._untold = (self.first, found), True
        before = last_good(kept, self.folder, self.clock.now()) if kept is not None else None
        if before is not None and before.policy is not None:
            again = self._judged(before, before.policy)
            if isinstance(again, Policy):
                get_logger().error("last_good_rules", digest=again.digest, errors=list(found))
                return again
        return without_rules(policy, self.gate.missing())

    async def judge(self, answer: Answer) -> Texts:
        """What is wrong with an answer of the catalog: what the last good files would not hold with."""
        return tuple(problem.text() for problem in (await self._with(answer)).errors)

    async def start_with_catalog(self) -> Policy | None:
        """Before `begin`: begin with what the catalog answered; None where there is no answer."""
        answer = self.catalog()
        found = await self._with(answer) if answer is not None else None
        if found is None or found.policy is None:
            return None
        self.first, self._watcher = found, BlueprintWatcher(self.folder, found)
        return found.policy

    async def _with(self, answer: Answer) -> LoadResult:
        good = self._watcher.last_good or self.first
        content, now = replace(good.source, catalog=answer), self.clock.now()
        return await asyncio.to_thread(load_content, content, Path(good.folder), now)

    def files_of(self, tree: str) -> bytes | None:
        """The files of the bundle in force, packed for the store; None for any other."""
        ruling = self._ruling
        return packed(ruling.source) if ruling is not None and ruling.sealed.tree == tree else None

    async def poll(self) -> Policy | Texts | None:
        """As PolicySource: also a policy anew when a replica has gone missing, or is found again."""
        found, missing = await self._looked_at(), self.missing()
        if isinstance(found, tuple) or (found is None and (self._whole is None or missing == self._left_out)):
            return found
        self._whole, self._left_out = found or self._whole, missing
        return without(self._whole, missing) if self._whole is not None else None

    async def _looked_at(self) -> Policy | Texts | None:
        found = await asyncio.to_thread(self._watcher.poll, self.clock.now(), self.catalog())
        if found is not None and found.policy is None:
            self._refused = None
            return tuple(problem.text() for problem in found.errors)
        if found is not None and found.policy is not None:
            return self._told(found, found.policy, anew=True)
        if self._refused is not None and self._refused[0].policy is not None:
            return self._told(self._refused[0], self._refused[0].policy, anew=self._untold)
        return None

    def _told(self, found: LoadResult, policy: Policy, *, anew: bool) -> Policy | Texts | None:
        before, judged = self._refused, self._judged(found, policy)
        self._untold = False
        if isinstance(judged, Policy):
            self._refused = None
            return judged
        self._refused = (found, judged)
        return judged if anew or before is None or before[1] != judged else None

    def _judged(self, found: LoadResult, policy: Policy) -> Policy | Texts:
        sealed = self.gate.let_in(found.sealed, self.clock.now(), self.clock.wall_ahead_s())
        if isinstance(sealed, Seal):
            self._ruling = found
            return replace(policy, seal=sealed)
        return tuple(problem.text() for problem in sealed)


__all__ = ["TrustSettings", "WatchedFolder", "known_of", "without_rules"]
