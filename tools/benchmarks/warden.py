"""Runs a command. When it ends, or SIGTERM comes, every process that it has started ends, too, also those that lost their parent.

  warden.py COMMAND [ARGUMENT...]

For servers of others, whose worker processes may outlive a server that was killed. Start it with dies_with_us(SIGTERM).
"""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>: orphans below this process become its children
TRACKER_LIMIT_S = 3


def children(word=b""):
    """This process's children with this word in their command line."""
    found = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(OSError):
            if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def end_all():
    """Python's resource tracker is killed last: it ends by itself behind the others, and removes what they left in /dev/shm."""
    patience = time.monotonic() + TRACKER_LIMIT_S
    while everyone := children():
        trackers = children(b"resource_tracker") if time.monotonic() < patience else []
        for pid in everyone:
            if pid not in trackers:
                os.kill(pid, signal.SIGKILL)  # ours until it is waited for
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def main():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the bench sends SIGTERM
    try:
        sys.exit(subprocess.Popen(sys.argv[1:]).wait())
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all()


if __name__ == "__main__":
    main()
