"""The part of data.yaml that names a catalog: an endpoint that answers data sets as data.yaml writes them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from dispatcher.config.values import Duration, Strict, Text, fail

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
SHORTEST_S = 5


class TokenRef(Strict):
    """Where the bearer token lies: a Secret of the hub, or a file. Read anew for each request."""

    secret: Annotated[Text | None, Field(description="namespace/name of a Secret on the hub.")] = None
    key: Annotated[Text, Field(description="Key within the Secret.")] = "token"
    file: Annotated[Text | None, Field(description="A path that the daemon can read.")] = None

    @model_validator(mode="after")
    def _one_place(self) -> TokenRef:
        if (self.secret is None) == (self.file is None):
            raise fail("exactly one of 'secret' and 'file' is needed", "write secret: entrepot-system/catalog-token")
        if self.secret is not None and (self.secret.count("/") != 1 or not all(self.secret.split("/"))):
            raise fail(f"secret '{self.secret}' is not namespace/name", "write secret: entrepot-system/catalog-token")
        return self


class CatalogRef(Strict):
    """An endpoint whose data sets are added to those of the file."""

    url: Annotated[Text, Field(description="https://...; http:// only on loopback. No user name, no fragment.")]
    every: Annotated[Duration, Field(description="How often it is asked.")] = 60
    max_age: Annotated[Duration, Field(description="An answer older than this says nothing any more.")] = 3600
    token: Annotated[TokenRef | None, Field(description="Bearer token; absent = none is sent.")] = None
    ca_file: Annotated[Text | None, Field(description="PEM file with the CAs to trust instead of the usual.")] = None

    @field_validator("url")
    @classmethod
    def _safe(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise fail("not a URL", "write https://HOST/PATH") from None
        if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
            raise fail("not an https:// URL", "write https://; http:// is for a sidecar on loopback")
        if not host or port == 0 or not url.isascii() or not url.isprintable() or " " in url:
            raise fail("not a URL", "write https://HOST/PATH")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise fail("a URL with a user name or a fragment", "write the token under token:")
        return url

    @model_validator(mode="after")
    def _sane(self) -> CatalogRef:
        if self.every < SHORTEST_S:
            raise fail(f"asked more often than every {SHORTEST_S} seconds", "write PT1M")
        if self.max_age <= self.every:
            raise fail("max_age is not longer than every", "an answer must outlive the pause between two")
        return self
