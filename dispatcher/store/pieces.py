"""What a decision saw, cut into pieces and put together again: pure, the store's tables know nothing of it.

A view is cut at places that its own keys determine, so that one pod that moved makes one new piece and the rest of a
cluster is stored once. A piece is compressed JSON under the digest of its content (docs/adr/0012-replay.md).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import operator
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_type_hints

from dispatcher.core.ids import DecisionId
from dispatcher.core.plain import PlainCodec, PlainError, plain_codec
from dispatcher.core.policy import Policy
from dispatcher.core.replay import Inputs
from dispatcher.core.snapshot import ClusterSnapshot, Hold, NodeView, Snapshot, Stake, WorkerView
from dispatcher.core.traffic import EMPTY, Traffic
from dispatcher.core.workload import Request
from dispatcher.store.codec import CodecError

_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_FORM = 1
"""Version of the layout of documents and cluster pieces."""
_MOST_PENDING = 20_000
"""Contents of commits that failed are dropped beyond this number, unless the newest views still need them."""
_CUT = 32
"""A piece holds this many entries on average."""
_VOLATILE = ("observed_at", "generation")
"""Fields of a view that change without its content: they stand in each decision's own document."""
_UNREAD = ("lies",)
"""Fields that no decision reads, and that would be many: they are not kept."""
_HINTS = {name: hint for name, hint in get_type_hints(WorkerView).items() if name not in _UNREAD}
_PARTS: dict[str, PlainCodec[Any]] = {
    **{name: plain_codec(hint) for name, hint in _HINTS.items() if getattr(hint, "__origin__", None) is Mapping},
    "nodes": plain_codec(tuple[NodeView, ...]),
}
"""The fields of a view that are cut into pieces: all that hold many entries."""
_HEAD: dict[str, PlainCodec[Any]] = {
    name: plain_codec(hint) for name, hint in _HINTS.items() if name not in _PARTS and name not in _VOLATILE
}
_HOLD, _POLICY, _REQUEST = plain_codec(Hold), plain_codec(Policy), plain_codec(Request)
_TRAFFIC = plain_codec(Traffic)
_STAKES: PlainCodec[Any] = plain_codec(Mapping[str, Stake])
_CLUSTER = plain_codec(ClusterSnapshot)
_TOLD = ("name", "link", "multikueue", "cached")
_INSTANT: PlainCodec[Any] = plain_codec(datetime)


@dataclass(frozen=True, slots=True)
class Packed:
    """A decision's document and the pieces that it needs and that are not stored yet."""

    decision: DecisionId
    document: bytes
    new: tuple[tuple[str, bytes], ...]
    segment: int = 0
    """The segment that these pieces complete: in another one, some of those left out would be missing."""

    @property
    def size(self) -> int:
        return len(self.document) + sum(len(content) for _, content in self.new)


@dataclass(frozen=True, slots=True)
class _Piece:
    keys: tuple[object, ...]
    values: tuple[object, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of a view as last seen, and the pieces that it was cut into."""

    source: object
    pieces: tuple[_Piece, ...]
    digests: tuple[str, ...]


@dataclass(slots=True)
class Packer:
    """Turns inputs into pieces; remembers the newest views, so that only what changed is encoded again.

    `stored` are digests known to be in the current segment, `pending` contents that no commit has taken yet.
    """

    stored: set[str] = field(default_factory=set)
    pending: dict[str, bytes] = field(default_factory=dict)
    _parts: dict[tuple[str, str], _Part] = field(default_factory=dict)
    _clusters: dict[str, tuple[tuple[object, ...], str]] = field(default_factory=dict)
    _holds: dict[int, tuple[Hold, str]] = field(default_factory=dict)
    _policy: tuple[Policy, str] | None = None

    def pack(self, decision: DecisionId, seen: Inputs) -> Packed:
        """Raises PlainError for a value that has no plain form (an instant without a zone)."""
        if len(self.pending) > _MOST_PENDING:
            live = self.live()
            self.pending = {digest: content for digest, content in self.pending.items() if digest in live}
        needed: list[str] = []
        policy = self._policy_digest(seen.policy)
        holds = self._hold_digests(seen.snapshot.holds)
        clusters: list[list[object]] = []
        for cluster in seen.snapshot.clusters:
            digest = self._cluster(cluster)
            worker = cluster.worker
            at = _INSTANT.encode(worker.observed_at) if worker is not None and worker.observed_at is not None else None
            clusters.append([digest, at, worker.generation if worker is not None else 0])
            if digest not in self.stored:
                needed += [digest, *self._digests_of(cluster)]
        needed += [policy, *holds]
        new = {digest: self.pending[digest] for digest in needed if digest not in self.stored}
        document = {
            "form": _FORM,
            "now": _INSTANT.encode(seen.now),
            "request": _REQUEST.encode(seen.request),
            "policy": policy,
            "clusters": clusters,
            "holds": holds,
        }
        if seen.snapshot.traffic != EMPTY:
            document["traffic"] = _TRAFFIC.encode(seen.snapshot.traffic)
        if seen.snapshot.stakes:
            document["stakes"] = _STAKES.encode(seen.snapshot.stakes)
        if seen.snapshot.wall_ahead_s:
            document["wall_ahead_s"] = seen.snapshot.wall_ahead_s
        return Packed(decision, _compressed(document), tuple(sorted(new.items())))

    def committed(self, packed: Packed) -> None:
        """The pieces of `packed` are in the segment now."""
        for digest, _ in packed.new:
            self.stored.add(digest)
            self.pending.pop(digest, None)

    def live(self) -> frozenset[str]:
        """Digests that the next decision will most likely need: all that the newest views were cut into."""
        found = {digest for part in self._parts.values() for digest in part.digests}
        found |= {digest for _, digest in (*self._clusters.values(), *self._holds.values())}
        return frozenset(found | ({self._policy[1]} if self._policy is not None else set()))

    def _piece(self, plain: object) -> str:
        content = _JSON.encode(plain).encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()[:12]).decode()
        if digest not in self.stored and digest not in self.pending:
            self.pending[digest] = zlib.compress(content)
        return digest

    def _policy_digest(self, policy: Policy) -> str:
        if self._policy is None or self._policy[0] is not policy:
            self._policy = (policy, self._piece(_POLICY.encode(policy)))
        return self._policy[1]

    def _hold_digests(self, holds: tuple[Hold, ...]) -> list[str]:
        known = self._holds
        # By identity: a hold lives as long as its promise, and hashing it costs as much as encoding it.
        self._holds = {id(hold): known.get(id(hold)) or (hold, self._piece(_HOLD.encode(hold))) for hold in holds}
        return [self._holds[id(hold)][1] for hold in holds]

    def _cluster(self, cluster: ClusterSnapshot) -> str:
        worker = cluster.worker
        head = tuple(getattr(worker, name) for name in _HEAD) if worker is not None else None
        parts = tuple(self._part(cluster.name, name, getattr(worker, name)) for name in _PARTS) if worker else ()
        key = (cluster.link, cluster.multikueue, cluster.cached, head, tuple(part.digests for part in parts))
        known = self._clusters.get(cluster.name)
        if known is not None and known[0] == key:
            return known[1]
        view = None
        if worker is not None:
            view = {name: codec.encode(getattr(worker, name)) for name, codec in _HEAD.items()}
        told = _CLUSTER.encode(dataclasses.replace(cluster, worker=None))
        plain = {
            "form": _FORM,
            **{name: told[name] for name in _TOLD},
            "view": view,
            "parts": {name: part.digests for name, part in zip(_PARTS, parts, strict=bool(parts))},
        }
        digest = self._piece(plain)
        self._clusters[cluster.name] = (key, digest)
        return digest

    def _part(self, cluster: str, name: str, source: object) -> _Part:
        known = self._parts.get((cluster, name))
        if known is not None and known.source is source:
            return known
        before = {piece.keys[0]: piece for piece in known.pieces} if known is not None else {}
        pieces = tuple(self._cut(name, keys, values, before) for keys, values in _cuts(source))
        part = _Part(source, pieces, tuple(piece.digest for piece in pieces))
        self._parts[cluster, name] = part
        return part

    def _cut(
        self, name: str, keys: tuple[object, ...], values: tuple[object, ...], before: Mapping[object, _Piece]
    ) -> _Piece:
        known = before.get(keys[0])
        if known is not None and known.keys == keys and all(map(operator.is_, known.values, values)):
            return known
        entries: object = values if name == "nodes" else dict(zip(keys, values, strict=True))
        return _Piece(keys, values, self._piece(_PARTS[name].encode(entries)))

    def _digests_of(self, cluster: ClusterSnapshot) -> Iterator[str]:
        for name in _PARTS if cluster.worker is not None else ():
            yield from self._parts[cluster.name, name].digests


def _cuts(source: Any) -> Iterator[tuple[tuple[object, ...], tuple[object, ...]]]:
    """Cut entries after each key that happens to hash low: an entry more or less moves no other cut."""
    pairs = source.items() if isinstance(source, Mapping) else ((node.name, node) for node in source)
    keys: list[object] = []
    values: list[object] = []
    for key, value in pairs:
        keys.append(key)
        values.append(value)
        if zlib.crc32(repr(key).encode()) % _CUT == 0:
            yield tuple(keys), tuple(values)
            keys, values = [], []
    if keys:
        yield tuple(keys), tuple(values)


def _compressed(plain: object) -> bytes:
    return zlib.compress(_JSON.encode(plain).encode())


# --- putting together ---


def clusters_in(document: bytes) -> list[str]:
    """Digests of the clusters that a document names. Raises CodecError."""
    return [digest for digest, _, _ in _document(document)["clusters"]]


def others_in(document: bytes, clusters: Mapping[str, bytes]) -> list[str]:
    """Digests of everything else that `unpacked` needs: what the document names, and what its clusters do.

    Raises CodecError."""
    named = _document(document)
    parts = [_plain(content, digest)["parts"] for digest, content in clusters.items()]
    return [named["policy"], *named["holds"], *(one for each in parts for many in each.values() for one in many)]


def unpacked(content: bytes, pieces: Mapping[str, bytes]) -> Inputs:
    """The inputs that `Packer.pack` cut up, from their document and at least the pieces that it names.

    Raises:
        CodecError: a piece is damaged, or not of this version's vocabulary.
    """
    document = _document(content)
    try:
        holds = tuple(_HOLD.decode(_plain(pieces[digest], digest)) for digest in document["holds"])
        clusters = tuple(_joined(entry, pieces) for entry in document["clusters"])
        return Inputs(
            request=_REQUEST.decode(document["request"]),
            snapshot=Snapshot(
                clusters,
                holds,
                _TRAFFIC.decode(document.get("traffic", {})),
                document.get("wall_ahead_s", 0),
                _STAKES.decode(document.get("stakes", [])),
            ),
            policy=_POLICY.decode(_plain(pieces[document["policy"]], "policy")),
            now=_INSTANT.decode(document["now"]),
        )
    except PlainError as error:
        raise CodecError(f"stored inputs cannot be read: {error}") from None


def _joined(entry: list[Any], pieces: Mapping[str, bytes]) -> ClusterSnapshot:
    digest, observed_at, generation = entry
    plain = _plain(pieces[digest], digest)
    _check_form(plain)
    worker = None
    if plain["view"] is not None:
        values: dict[str, Any] = {name: _HEAD[name].decode(value) for name, value in plain["view"].items()}
        for name, digests in plain["parts"].items():
            decoded = [_PARTS[name].decode(_plain(pieces[d], d)) for d in digests]
            many = [item for part in decoded for item in (part.items() if isinstance(part, dict) else part)]
            values[name] = tuple(many) if name == "nodes" else dict(many)
        instant = _INSTANT.decode(observed_at) if observed_at is not None else None
        worker = WorkerView(**values, observed_at=instant, generation=generation)
    told = {name: plain[name] for name in _TOLD if name in plain}  # older ones know no caches
    return dataclasses.replace(_CLUSTER.decode({**told, "worker": None}), worker=worker)


def _document(content: bytes) -> Any:
    document = _plain(content, "document")
    _check_form(document)
    return document


def _check_form(plain: Any) -> None:
    if plain.get("form") != _FORM:
        raise CodecError(f"stored inputs have form {plain.get('form')!r}; this version reads form {_FORM}")


def _plain(content: bytes, what: str) -> Any:
    try:
        return json.loads(zlib.decompress(content))
    except (zlib.error, ValueError):
        raise CodecError(f"stored inputs cannot be read: {what} is damaged") from None
