"""Run a program with a small file system of its own: `python small_disk.py FOLDER MEBIBYTES PROGRAM ARGUMENT...`.

A user namespace with a mount namespace lets an ordinary user mount a tmpfs over a folder; a full one answers with the
kernel's own ENOSPC. Others reach it by way of /proc/PID/root. Only standard library.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main(folder: str, mebibytes: str, argv: list[str]) -> None:
    """Enter the namespaces, mount, become the program."""
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    _check(library.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a user and mount namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _check(library.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "a private mount tree")
    options = f"size={mebibytes}m,mode=0700".encode()
    _check(library.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, options), f"a file system on {folder}")
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
