"""What a leader writes is refused once a later term has begun (design section 12)."""

from __future__ import annotations

from sqlalchemy import Connection, select

from dispatcher.core.errors import Fenced
from dispatcher.store.tables import leadership


def require_term(connection: Connection, term: int) -> None:
    """Raises Fenced when a later term has begun. The shared lock makes a term that begins now wait for our commit."""
    row = connection.execute(select(leadership).with_for_update(read=True)).one()
    if term < row.term:
        raise Fenced(f"store: term {row.term} of {row.holder} has begun; {term} is over")
