"""Run a program with another /etc: `python enclosed.py ETC PROGRAM ARGUMENT...`, without being root.

Kueue reads a certificate from a fixed path below /etc. A user namespace with a mount namespace lets an ordinary user
show it a folder of its own there. Only standard library: it is started without the project's environment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
PR_SET_PDEATHSIG = 1


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main(etc: str, argv: list[str]) -> None:
    """Enter the namespaces, bind `etc` over /etc, become the program."""
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    _check(library.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a user and mount namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _check(library.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "a private mount tree")
    _check(library.mount(etc.encode(), b"/etc", None, MS_BIND, None), "mounting over /etc")
    # The kernel forgets this wish when a process gains capabilities, as it did with its new namespace: ask again.
    library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(1)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
