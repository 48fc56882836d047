"""How the C library keeps memory that is free: for a process that runs for a year.

glibc gives each thread a heap of its own, and takes what is larger than an ever growing bound from these heaps as well.
What a page of a list or a packed record needs for a moment then leaves holes in eight heaps, which stay with the
process: in half an hour of a soak 10 MiB of 130 were free memory that nobody could use.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3)."""
_SETTINGS = ((_M_ARENA_MAX, 2), (_M_MMAP_THRESHOLD, 128 * 1024), (_M_TRIM_THRESHOLD, 256 * 1024))


def calm_allocator() -> bool:
    """For this process, before it has threads: two heaps for all of them, and what is large goes back at once. Returns
    whether the C library knows how; another one than glibc is left as it is."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    taken = [mallopt(name, value) for name, value in _SETTINGS]
    return all(taken)
