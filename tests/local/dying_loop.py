"""`entrepot serve` whose work loop can be made to die: from when a file is there, each of its turns fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from dispatcher.app.serve import ServeOptions, serve
from dispatcher.logs import configure
from dispatcher.loops.dispatch import DispatchLoop


def main(dies_by: Path, options: ServeOptions) -> None:
    turn = DispatchLoop.turn

    def mortal(loop: DispatchLoop) -> Coroutine[Any, Any, float]:
        if dies_by.exists():
            raise RuntimeError("the work loop was made to die")
        return turn(loop)

    DispatchLoop.turn = mortal  # type: ignore[method-assign]
    configure("info")
    asyncio.run(serve(options))


if __name__ == "__main__":
    file, blueprint, store, listen, kubeconfig = sys.argv[1:]
    main(Path(file), ServeOptions(Path(blueprint), store, listen, Path(kubeconfig), ha=True))
