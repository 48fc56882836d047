"""Durable memory of the daemon: decisions, holds, intents and terms (docs/adr/0001-store.md, 0009-postgresql.md).

`open_store` is for the daemon that writes; `open_records` reads the same store while the daemon is down.
"""

from dispatcher.store.codec import CodecError, decode_decision, encode_decision, wait_fingerprint
from dispatcher.store.opening import copy_store, is_postgres, open_records, open_store, shown
from dispatcher.store.sql import SqlStore

__all__ = [
    "CodecError",
    "SqlStore",
    "copy_store",
    "decode_decision",
    "encode_decision",
    "is_postgres",
    "open_records",
    "open_store",
    "shown",
    "wait_fingerprint",
]
