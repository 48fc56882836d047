"""Durable memory of the daemon: decisions, holds and intents (docs/adr/0001-store.md).

`open_store` is for the one daemon that writes; `open_records` reads the same file while the daemon is down.
"""

from dispatcher.store.codec import CodecError, decode_decision, encode_decision, wait_fingerprint
from dispatcher.store.opening import open_records, open_store
from dispatcher.store.sql import SqlStore

__all__ = [
    "CodecError",
    "SqlStore",
    "decode_decision",
    "encode_decision",
    "open_records",
    "open_store",
    "wait_fingerprint",
]
