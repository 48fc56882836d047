"""Heaps of the C library, as it counts them itself."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ALLOCATING = """
import ctypes, sys, threading
from dispatcher.allocator import calm_allocator
calm = sys.argv[1] == "calm" and calm_allocator()
ready = threading.Barrier(6)

def work():
    ready.wait()
    kept = [bytes(1000 + n) for n in range(2000)]
    ready.wait()

threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.CDLL(None).malloc_stats()
print(calm)
"""


def heaps(how: str) -> tuple[str, int]:
    """What the setting says of itself, and the heaps of a process with six busy threads."""
    ran = subprocess.run(
        [sys.executable, "-c", ALLOCATING, how], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout.strip(), ran.stderr.count("Arena ")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's own")
def test_threads_share_two_heaps() -> None:
    assert heaps("calm") == ("True", 2)
    assert heaps("as it is")[1] > 2, "without the setting each thread takes one, else this test shows nothing"
