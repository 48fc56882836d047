"""`policy audit`: the audit log of the law, as lines of JSON, and whether nobody has changed it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from dispatcher.cli.errors import CliError, ExitCode
from dispatcher.cli.printing import note
from dispatcher.core.audit import Broken, Head, Row, export_line, imported
from dispatcher.core.audit import verify as verify_chain
from dispatcher.core.errors import EntrepotError, Fatal

BROKEN = ExitCode.ERROR


def audit(
    store: Annotated[
        str, typer.Option("--store", envvar="ENTREPOT_STORE", help="the daemon's store", metavar="FILE|URL")
    ] = "entrepot.db",
    exported: Annotated[
        Path | None, typer.Option("--from", help="verify an export instead of a store", metavar="FILE")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="say whether the chain holds, and print no rows")] = False,
) -> None:
    """Print every row, oldest first, as lines of JSON; or verify the chain and name the first row that does not hold.

    Reads the store, beside a running daemon too, and changes nothing. Exit codes: 0 it holds, 1 it is broken.
    """
    rows, head = _of_file(exported) if exported is not None else _of_store(store)
    if not verify:
        for row in rows:
            sys.stdout.write(export_line(row) + "\n")
        return
    broken: Broken | None = verify_chain(rows, head)
    if broken is not None:
        sys.stdout.write(f"broken at row {broken.seq}: {broken.why}\n")
        raise typer.Exit(BROKEN)
    first, last = (rows[0].seq, rows[-1].seq) if rows else (0, 0)
    sys.stdout.write(f"good: {len(rows)} rows, {first} to {last}, ends in {rows[-1].digest[:16] if rows else '-'}\n")
    if exported is not None:
        note("an export cannot show rows that were cut off its end: compare where it ends with the store")


def _of_file(path: Path) -> tuple[list[Row], Head | None]:
    try:
        lines = path.read_text().splitlines()
        return [imported(line) for line in lines if line.strip()], None
    except OSError as error:
        fix = "name a file that entrepot policy audit wrote"
        raise CliError(f"cannot be read: {error.strerror}", where=str(path), fix=fix, code=ExitCode.USAGE) from None
    except ValueError as error:
        raise CliError(str(error), where=str(path), fix="export it again", code=ExitCode.USAGE) from None


def _of_store(target: str) -> tuple[list[Row], Head | None]:
    # Imported here: opening a database takes longer to load than everything else together.
    from dispatcher.store import open_records, shown

    async def read() -> tuple[list[Row], Head]:
        store = await open_records(target)
        try:
            head = await store.audit_log.head()
            return [row async for row in store.audit_log.rows() if row.seq <= head.seq], head
        finally:
            await store.close()

    try:
        return asyncio.run(read())
    except EntrepotError as error:
        fix = error.fix if isinstance(error, Fatal) else "see that the store is there: --store"
        raise CliError(str(error), where=shown(target), fix=fix, code=ExitCode.USAGE) from None
