"""Stands for a job: says that it is ready, notes the signals it gets, and ends with the status it is told.

``ending.py EXPECTED``: ends after the signals named (``TERM,USR1``) have come, with 100 plus their number. It says which
came, and how many more came within a second of the last.
"""

import os
import signal
import sys


def main() -> int:
    """Wait for the signals in order."""
    expected = [getattr(signal, f"SIG{name}") for name in sys.argv[1].split(",")]
    signal.pthread_sigmask(signal.SIG_BLOCK, set(expected))
    print(f"ready, a terminal: {[os.isatty(stream) for stream in (0, 1, 2)]}", flush=True)
    for number in expected:
        signal.sigwait({number})
        print(f"got {number.name}", flush=True)
    more = 0
    while signal.sigtimedwait(set(expected), 1.0) is not None:
        more += 1
    print(f"and {more} more", flush=True)
    return 100 + len(expected)


if __name__ == "__main__":
    sys.exit(main())
