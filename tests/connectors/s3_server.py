"""An S3 on loopback: moto's server in this process, with buckets made over its own HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import obstore
from obstore.store import S3Store

from dispatcher.core.policy import ObjectSource

REGION = "eu-west-1"
KEY = {"aws_access_key_id": "reader", "aws_secret_access_key": "very-secret"}


@dataclass
class S3Server:
    url: str
    _stores: dict[str, Any] = field(default_factory=dict)

    def bucket(self, name: str) -> None:
        import boto3

        client = boto3.client("s3", endpoint_url=self.url, region_name=REGION, **KEY)
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        self._stores[name] = S3Store(name, endpoint=self.url, region=REGION, client_options={"allow_http": True}, **KEY)

    def put(self, bucket: str, *paths: str, size: int = 5) -> None:
        for path in paths:
            obstore.put(self._stores[bucket], path, b"x" * size)

    def delete(self, bucket: str, *paths: str) -> None:
        obstore.delete(self._stores[bucket], list(paths))

    def source(self, bucket: str = "lake", prefix: str = "sets", marker: str | None = None) -> ObjectSource:
        return ObjectSource(f"s3://{bucket}/{prefix}", 900, self.url, REGION, None, marker)


async def key() -> bytes:
    return json.dumps(KEY).encode()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    from moto.server import ThreadedMotoServer  # half a second, which only those who start one should pay

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
