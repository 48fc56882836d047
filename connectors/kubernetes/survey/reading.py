"""Reads of one cluster for the doctor. A read that fails becomes a note and gives None; it never stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from connectors.kubernetes.client import JSON, METADATA_LIST, ApiClient, Call
from connectors.kubernetes.faults import Forbidden, NotFound
from connectors.kubernetes.fields import Raw, child, children, text
from dispatcher.core.doctor.facts import Unread, Verb
from dispatcher.core.errors import EntrepotError
from dispatcher.core.resources import QuantityError

T = TypeVar("T")

CALL_S = 10.0
_PAGE = "250"
_MOST_PAGES = 400
"""100,000 objects: more than a hub that works has, and an end to a server that always says there is more."""
_AT_ONCE = 8
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True)
class Listing:
    """A collection: how it is asked for, and which permission that takes."""

    verb: Verb
    path: str
    metadata_only: bool = False
    label_selector: str = ""
    field_selector: str = ""
    absent_is_empty: bool = False
    """A kind that the cluster does not serve has no objects."""


@dataclass(slots=True)
class Reader:
    """`unread` collects what failed, in words for a person."""

    client: ApiClient
    unread: list[Unread] = field(default_factory=list)

    async def get(self, what: str, path: str, *, quiet: bool = False) -> Raw | None:
        """One object; None when it is absent or cannot be read. `quiet`: its absence is no news."""
        try:
            return await self.client.get(path, deadline_s=CALL_S)
        except NotFound as error:
            if not quiet:
                self.missed(what, error)
        except EntrepotError as error:
            self.missed(what, error)
        return None

    async def list(self, listing: Listing, decode: Callable[[Raw], T]) -> tuple[T, ...] | None:
        """All objects of a collection, decoded page by page, so that a large one is never held whole."""
        params = {"limit": _PAGE}
        if listing.label_selector:
            params["labelSelector"] = listing.label_selector
        if listing.field_selector:
            params["fieldSelector"] = listing.field_selector
        found: list[T] = []
        try:
            for _ in range(_MOST_PAGES):
                accept = METADATA_LIST if listing.metadata_only else JSON
                page = await self.client.page(listing.path, params, accept)
                found += self._decoded(listing, children(page, "items"), decode)
                more = text(child(page, "metadata"), "continue")
                if not more:
                    return tuple(found)
                params["continue"] = more
        except NotFound as error:
            if listing.absent_is_empty:
                return ()
            self.missed(listing.verb.text(), error)
            return None
        except EntrepotError as error:
            self.missed(listing.verb.text(), error)
            return None
        self.unread.append(Unread(listing.verb.text(), f"there are more than {_MOST_PAGES} pages of them"))
        return None

    def _decoded(self, listing: Listing, items: Iterable[Raw], decode: Callable[[Raw], T]) -> Iterable[T]:
        for raw in items:
            try:
                yield decode(raw)
            except QuantityError as error:
                name = text(child(raw, "metadata"), "name")
                self.unread.append(Unread(f"{listing.verb.resource} {name}", str(error)))

    def missed(self, what: str, error: EntrepotError) -> None:
        """Note what failed; what the apiserver says at length about a refusal repeats what was asked."""
        short: dict[type[EntrepotError], str] = {NotFound: "not there", Forbidden: "forbidden"}
        why = short.get(type(error), str(error))
        self.unread.append(Unread(what, why))

    # --- permissions ---

    async def account(self) -> str:
        """Who the apiserver takes us for; empty when it does not say."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            review = await self.client.once(Call("POST", _WHO, body=body, deadline_s=CALL_S))
        except EntrepotError:
            return ""
        return text(child(review, "status", "userInfo"), "username")

    async def denied(self, verbs: Iterable[Verb]) -> tuple[Verb, ...] | None:
        """Those of the verbs that the account may not use, in order; None when the cluster does not answer that."""
        wanted = sorted(set(verbs))
        answers = [await self._allowed(verb) for verb in wanted[:1]]
        if not any(isinstance(answer, EntrepotError) for answer in answers):  # else it is not asked a hundred times
            answers += await at_once([partial(self._allowed, verb) for verb in wanted[1:]])
        refused = next((answer for answer in answers if isinstance(answer, EntrepotError)), None)
        if refused is not None:
            self.missed("create selfsubjectaccessreviews", refused)
            return None
        return tuple(verb for verb, allowed in zip(wanted, answers, strict=True) if not allowed)

    async def _allowed(self, verb: Verb) -> bool | EntrepotError:
        resource, _, subresource = verb.resource.partition("/")
        attributes = {"verb": verb.verb, "group": verb.group, "resource": resource}
        optional = {"subresource": subresource, "namespace": verb.namespace, "name": verb.name}
        attributes |= {key: value for key, value in optional.items() if value}
        body: Mapping[str, object] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            review = await self.client.once(Call("POST", _REVIEWS, body=body, deadline_s=CALL_S))
        except EntrepotError as error:
            return error
        return child(review, "status").get("allowed") is True


async def at_once(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Make calls side by side, a few at a time; answers in the order of the calls. Raises a group of their errors."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await call()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(call)) for call in calls]
    return [task.result() for task in tasks]
