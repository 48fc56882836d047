"""The part of a store in data.yaml that says where its objects lie, so that replicas can be looked for there."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from dispatcher.config.catalog_ref import LOOPBACK
from dispatcher.config.values import Duration, Strict, Text, fail

SCHEMES = ("s3", "gs", "az")
SHORTEST_S = 60


class StoreKeyRef(Strict):
    """Where the key to a store lies: JSON of names that `docs/data.md` lists, in a Secret of the hub or a file."""

    secret: Annotated[Text | None, Field(description="namespace/name of a Secret on the hub.")] = None
    key: Annotated[Text, Field(description="Key within the Secret.")] = "credentials.json"
    file: Annotated[Text | None, Field(description="A path that the daemon can read.")] = None

    @model_validator(mode="after")
    def _one_place(self) -> StoreKeyRef:
        if (self.secret is None) == (self.file is None):
            raise fail("exactly one of 'secret' and 'file' is needed", "write secret: entrepot-system/lake-key")
        if self.secret is not None and (self.secret.count("/") != 1 or not all(self.secret.split("/"))):
            raise fail(f"secret '{self.secret}' is not namespace/name", "write secret: entrepot-system/lake-key")
        return self


class ObjectsRef(Strict):
    """Where a store's objects lie. A data set's are below its own name: URL/NAME/."""

    url: Annotated[Text, Field(description="s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX.")]
    endpoint: Annotated[Text | None, Field(description="Of an S3 or Azure that is not the provider's own.")] = None
    region: Annotated[Text | None, Field(description="The bucket's region, as its provider calls it (S3).")] = None
    credentials: Annotated[StoreKeyRef | None, Field(description="Absent = the pod's own identity.")] = None
    marker: Annotated[
        Text | None, Field(description="Object that a complete replica has, such as _SUCCESS; absent = any object.")
    ] = None
    every: Annotated[Duration, Field(description="How often each replica is looked for.")] = 900

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise fail("not a URL", "write s3://BUCKET/PREFIX") from None
        if parts.scheme not in SCHEMES or not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
            raise fail("not the URL of a bucket", f"write one of {', '.join(f'{s}://BUCKET/PREFIX' for s in SCHEMES)}")
        return url.rstrip("/")

    @field_validator("endpoint")
    @classmethod
    def _safe(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        try:
            parts = urlsplit(endpoint)
            host = parts.hostname
        except ValueError:
            raise fail("not a URL", "write https://HOST") from None
        if (
            not host
            or "@" in parts.netloc
            or not (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK))
        ):
            raise fail("not an https:// URL", "write https://HOST; http:// is for loopback")
        return endpoint

    @field_validator("marker")
    @classmethod
    def _relative(cls, marker: str | None) -> str | None:
        if marker is not None and (marker.startswith("/") or ".." in marker.split("/") or "*" in marker):
            raise fail("not the name of an object below the data set", "write such as _SUCCESS")
        return marker

    @model_validator(mode="after")
    def _sane(self) -> ObjectsRef:
        if self.every < SHORTEST_S:
            raise fail("looked for more often than every minute: each look is billed", "write PT15M")
        return self
