"""Runs in processes of their own, as many side by side as there are cores."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from dispatcher.logs import configure
from dispatcher.runtime import calm_collector

A = TypeVar("A")
R = TypeVar("R")


def side_by_side(call: Callable[[A], R], asked: Sequence[A], cores: int) -> Generator[tuple[int, R], None, None]:
    """What `call` makes of each, with its place among them, in the order in which they are over. The first error,
    Ctrl-C, or `close` (contextlib.closing) ends all the others.

    Raises:
        BrokenExecutor: a process was ended from outside, as by want of memory.
    """
    others = active_children()
    with ProcessPoolExecutor(min(cores, len(asked)), get_context("spawn"), _begin) as pool:
        try:
            going = {pool.submit(call, each): place for place, each in enumerate(asked)}
            for done in as_completed(going):
                yield going[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()).difference(others):
                child.terminate()  # a run does not look up until it is over
            raise


def _begin() -> None:
    """Once in each process: as the command does it for its own; and it lives no longer than that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    configure("critical")
    calm_collector()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
