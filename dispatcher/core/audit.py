"""The audit log: what the law said, of which data, where, and who had changed it. Append-only, each row chained to the
one before it (docs/adr/0017-audit-chain.md).

A row names data by its name in the catalog, a job by its Workload's uid, and nothing more: no path, no object's name,
no person but those whom a signed manifest names as author and approvers. Pure: rows are values, and a chain is
verified from its bytes alone, here or by anybody who has the export.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from dispatcher.core.decision import Decision, Outcome
from dispatcher.core.ids import ClusterName, DecisionId, WorkloadUid
from dispatcher.core.legality import ruling_on
from dispatcher.core.plain import PlainCodec, plain_codec
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs
from dispatcher.core.seal import Seal
from dispatcher.core.snapshot import digest_of
from residency.plans import Ruling
from residency.verdict import Verdict

GENESIS = "0" * 64
"""What the first row of all is chained to."""


class AuditKind(StrEnum):
    """What a row tells. Stable codes."""

    VERDICT = "verdict"
    """A decision: what the law said of the cluster that was chosen, and of those that it kept out."""
    BUNDLE = "bundle"
    """Other rules rule from here on."""
    REFUSED = "bundle-refused"
    """A bundle arrived that must not rule; the last good one stays."""
    ILLEGAL = "illegal"
    """Something that waits or runs became illegal, and what is done about it."""
    LEGAL_AGAIN = "legal-again"
    IDLE = "idle"
    """Somebody's work was given notice for being idle, had it taken back, or was ended (core/idle.py)."""
    CHECKPOINT = "checkpoint"
    """Older rows were dropped; this one carries the chain on."""


@dataclass(frozen=True, slots=True)
class Said:
    """One verdict, short: a flow of one label of one artefact (a catalog name) to a place (a catalog name)."""

    flow: str
    data: str
    label: str
    to: str
    answer: str
    code: str
    rule: str = ""
    rule_at: str = ""
    clause: str = ""
    clause_at: str = ""
    seen: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One row's content. `event` names what happened: the same event is written once, however often it is tried.

    `inputs` is the digest of what was judged on, `ruling` that of the whole answer: a replay of `decision` gives both.
    `would`: rules that only warn, or are shadows, with what they would have said. `detail` is for the few rows that are
    no verdicts.
    """

    event: str
    kind: AuditKind
    at: datetime
    actor: str
    bundle: str
    serial: int | None = None
    decision: DecisionId | None = None
    workload: WorkloadUid | None = None
    cluster: ClusterName | None = None
    inputs: str = ""
    ruling: str = ""
    answer: str = ""
    said: tuple[Said, ...] = ()
    obligations: tuple[str, ...] = ()
    would: tuple[str, ...] = ()
    mode: str = "enforce"
    valid_until: datetime | None = None
    detail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A link of the chain. `digest` covers `seq`, `previous` and `body`."""

    seq: int
    previous: str
    body: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class Head:
    """Where the chain ends now: what the next row is chained to."""

    seq: int = 0
    digest: str = GENESIS


@dataclass(frozen=True, slots=True)
class Broken:
    """The first row that does not hold, and why."""

    seq: int
    why: str


_ENTRY: PlainCodec[Entry] = plain_codec(Entry)


def body_of(entry: Entry) -> bytes:
    """Canonical JSON: the same entry gives the same bytes."""
    return json.dumps(_ENTRY.encode(entry), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def entry_of(body: bytes) -> Entry:
    """Raises PlainError or ValueError: not an entry of this version."""
    return _ENTRY.decode(json.loads(body))


def link(head: Head, entry: Entry) -> Row:
    """The row that an entry becomes after a head."""
    body = body_of(entry)
    return Row(head.seq + 1, head.digest, body, digest_of_row(head.seq + 1, head.digest, body))


def digest_of_row(seq: int, previous: str, body: bytes) -> str:
    return hashlib.sha256(f"{seq}\n{previous}\n".encode() + body).hexdigest()


# --- verifying ---------------------------------------------------------------------------------------------------


def verify(rows: Iterable[Row], head: Head | None = None) -> Broken | None:
    """Whether rows, oldest first, are one chain that nobody has changed; None when they are.

    The first row may be a late one, if older rows were dropped: then a checkpoint further on must know what it is
    chained to. With `head`, rows that are missing at the end are found too.
    """
    before: Row | None = None
    unproven: Row | None = None
    for row in rows:
        broken = _link_broken(before, row)
        if broken is not None:
            return broken
        if before is None and row.seq > 1:
            unproven = row
        if unproven is not None and _proves(row, unproven):
            unproven = None
        before = row
    if unproven is not None:
        return Broken(unproven.seq, "rows before it are missing, and no checkpoint accounts for them")
    if head is not None and (before.seq if before else 0, before.digest if before else GENESIS) != (
        head.seq,
        head.digest,
    ):
        return Broken((before.seq if before else 0) + 1, f"rows up to {head.seq} are missing at the end")
    return None


def _link_broken(before: Row | None, row: Row) -> Broken | None:
    if row.digest != digest_of_row(row.seq, row.previous, row.body):
        return Broken(row.seq, "its content is not what was written")
    if before is not None and row.seq != before.seq + 1:
        return Broken(before.seq + 1, "the row is missing")
    if before is not None and row.previous != before.digest:
        return Broken(row.seq, "it is not chained to the row before it")
    if row.seq == 1 and row.previous != GENESIS:
        return Broken(1, "it is not where a chain begins")
    return None


def _proves(row: Row, first: Row) -> bool:
    """Whether a row is the checkpoint that tells up to where rows were dropped before `first`."""
    found = json.loads(row.body)
    if found.get("kind") != AuditKind.CHECKPOINT.value:
        return False
    told = dict(found.get("detail", ()))
    return told.get("through") == str(first.seq - 1) and told.get("digest") == first.previous


def checkpoint(last_dropped: Row, now: datetime) -> Entry:
    """The row that carries a chain on from which all rows up to one are dropped."""
    detail = (("digest", last_dropped.digest), ("through", str(last_dropped.seq)))
    return Entry(f"checkpoint/{last_dropped.seq}", AuditKind.CHECKPOINT, now, "entrepot", "", detail=detail)


def export_line(row: Row) -> str:
    """One line of the export: everything that `verify` needs, readable as it is."""
    plain: dict[str, Any] = {
        "seq": row.seq,
        "previous": row.previous,
        "digest": row.digest,
        "body": row.body.decode(),
        "entry": json.loads(row.body),
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def imported(line: str) -> Row:
    """The row of a line of an export. Raises ValueError: it is none."""
    try:
        found = json.loads(line)
        return Row(int(found["seq"]), str(found["previous"]), str(found["body"]).encode(), str(found["digest"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a row of an audit log: {error}") from None


def under(policy: Policy, kind: AuditKind, event: str, now: datetime) -> Entry:
    """A row under some rules, by whoever answers for them; what it tells is to be filled in."""
    return Entry(event, kind, now, policy.seal.actor, policy.residency.digest, policy.seal.serial)


# --- what decisions leave ----------------------------------------------------------------------------------------


def entries_of(decision: Decision, seen: Inputs) -> Iterator[Entry]:
    """What a decision leaves in the log: the ruling on the cluster that it chose, and the first word against each
    cluster that the law kept out. Nothing where the law had no part in it: a job that waits for room moves no data.
    """
    others = [c.cluster for c in decision.candidates if c.cluster != decision.chosen]
    kept_out = tuple(said for cluster in others for said in _kept_out(cluster, seen))
    ruling = _on_chosen(decision, seen)
    if ruling is None and not kept_out:
        return
    found = tuple(said_of(verdict) for verdict in ruling.verdicts) if ruling is not None else ()
    yield replace(
        under(seen.policy, AuditKind.VERDICT, f"decision/{decision.id}", seen.now),
        decision=decision.id,
        workload=decision.workload,
        cluster=decision.chosen,
        inputs=digest_of((decision.request_digest, decision.snapshot_digest, decision.policy_digest)),
        ruling=ruling.digest if ruling is not None else "",
        answer=ruling.answer.value if ruling is not None else "deny",
        said=(*found, *kept_out),
        obligations=obligations_of(ruling) if ruling is not None else (),
        would=would_of(ruling) if ruling is not None else (),
        valid_until=ruling.valid_until if ruling is not None else None,
        detail=(("outcome", decision.outcome.value),) if decision.outcome is not Outcome.NOMINATE else (),
    )


def _on_chosen(decision: Decision, seen: Inputs) -> Ruling | None:
    site = seen.policy.clusters.get(decision.chosen) if decision.chosen is not None else None
    chosen = decision.candidate(decision.chosen) if decision.chosen is not None else None
    if site is None or chosen is None:
        return None
    flavors = tuple(dict.fromkeys(placement.flavor for placement in chosen.placements))
    end = seen.dated + timedelta(seconds=decision.estimate.duration_s)
    return ruling_on(seen.request, site, seen.policy, seen.dated, flavors, end)


def _kept_out(cluster: ClusterName, seen: Inputs) -> Iterator[Said]:
    """The first verdict against a cluster; none where all flows there are legal."""
    site = seen.policy.clusters.get(cluster)
    if site is None:
        return
    against = ruling_on(seen.request, site, seen.policy, seen.dated).against
    if against:
        yield said_of(against[0])


def said_of(verdict: Verdict) -> Said:
    why = verdict.because
    return Said(
        flow=verdict.flow.value,
        data=verdict.artefact,
        label=verdict.label,
        to=verdict.destination,
        answer=verdict.answer.value,
        code=why.code.value,
        rule=why.rule,
        rule_at=str(why.at),
        clause=why.clause,
        clause_at=str(why.clause_at),
        seen=why.seen,
        exceptions=verdict.exceptions,
    )


def obligations_of(ruling: Ruling) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{flow.value}: {one.duty.value}" for flow, one in ruling.obligations))


def would_of(ruling: Ruling) -> tuple[str, ...]:
    """In the words of a shadow: it would have, it never has."""
    said = (f"{one.mode.value}: {one.rule} would have said {one.answer.value}" for one in ruling.would)
    return tuple(dict.fromkeys(said))


# --- what happens to bundles -------------------------------------------------------------------------------------


def bundle_name(policy: Policy) -> str:
    """The same for the same rules under the same seal: how their rows begin."""
    return f"bundle/{policy.residency.digest}/{policy.seal.identity}"


def bundle_entry(policy: Policy, now: datetime) -> Entry:
    """Rules that rule from an instant on, and who answers for them."""
    seal = policy.seal
    detail = [("trust", seal.trust.value), ("tree", seal.tree), ("revision", seal.revision), ("key", seal.key)]
    if seal.rolled_back:
        detail.append(("rolled_back", "explicitly allowed"))
    entry = under(policy, AuditKind.BUNDLE, f"{bundle_name(policy)}/{now.isoformat()}", now)
    return replace(entry, detail=tuple((name, value) for name, value in detail if value))


def refusal_entry(why: tuple[str, ...], in_force: Policy, now: datetime) -> Entry:
    """Files that must not rule. Who changed them is not known: nobody vouches for them.

    Of a wrong file only the place is kept: what stands there may name people.
    """
    return Entry(
        event=f"bundle-refused/{digest_of((why, now))}",
        kind=AuditKind.REFUSED,
        at=now,
        actor=Seal().actor,
        bundle=in_force.residency.digest,
        serial=in_force.seal.serial,
        detail=tuple(("why", _without_values(text)) for text in why[:5]),
    )


def _without_values(text: str) -> str:
    """The place and severity of a problem's text; all of it where it is about the seal."""
    return text[:300] if text.startswith("residency/manifest.json") else ": ".join(text.split(": ")[:2])[:120]
