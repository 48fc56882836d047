"""`entrepot serve` on a machine whose wall clock tests set: by the seconds that a file holds, read at each look."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dispatcher.app.serve import ServeOptions, serve
from dispatcher.logs import configure
from dispatcher.runtime import SystemClock


def main(set_by: Path, options: ServeOptions) -> None:
    def wall() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(set_by.read_text() or 0))

    configure("info")
    asyncio.run(serve(options, SystemClock(wall)))


if __name__ == "__main__":
    file, blueprint, store, listen, kubeconfig = sys.argv[1:]
    main(Path(file), ServeOptions(Path(blueprint), store, listen, Path(kubeconfig), ha=True))
