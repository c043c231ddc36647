"""Trains as ``training.py`` does, but where rank 1 pauses it is in uninterruptible sleep, as on a disk that hangs.

The parent of a ``vfork`` sleeps so until its child ends. ``LIBRARY`` is compiled by the test.
"""

import ctypes
import os
import runpy
import time
from pathlib import Path

_uninterruptible = ctypes.CDLL(os.environ["LIBRARY"]).uninterruptible
_sleep = time.sleep


def _pause(seconds: float) -> None:
    if seconds >= 1.0:
        _uninterruptible(int(seconds + 0.5))
    else:
        _sleep(seconds)


time.sleep = _pause
runpy.run_path(str(Path(__file__).with_name("training.py")), run_name="__main__")
