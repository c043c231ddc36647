"""Very many Python processes, each with the environment of a rank and a life of milliseconds: ``swarm.py FAMILIES``.

A family is an interpreter (one in ten with site, and so with the probe where the environment has it) and nine forks of it,
some of which outlive it. Prints how many there were.
"""

import ctypes
import os
import sys

_FAMILY = """
import os, time
for child in range(9):
    if os.fork() == 0:
        time.sleep(child * 0.004)
        os._exit(0)
"""
_AT_ONCE = 3
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Start them, a few families at once, and bury all: nobody's zombie is left to an init that does not care."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    families, buried = set[int](), 0
    for number in range(int(sys.argv[1])):
        claim = {"RANK": str(number % 9), "LOCAL_RANK": str(number % 9), "WORLD_SIZE": "9"}
        options = [] if number % 10 == 0 else ["-I", "-S"]
        command = [sys.executable, *options, "-c", _FAMILY]
        families.add(os.posix_spawn(sys.executable, command, {**os.environ, **claim}))
        while len(families) >= _AT_ONCE:
            families.discard(os.wait()[0])
            buried += 1
    try:
        while os.wait():
            buried += 1
    except ChildProcessError:
        print(buried)


if __name__ == "__main__":
    main()
