"""The probe: the part of hangwatch that runs inside a training rank.

Set up by the environment alone (``site/sitecustomize.py``, found through ``PYTHONPATH``) or by ``import
hangwatch.probe``; without ``HANGWATCH_RUN_DIR`` it does nothing. It may run in an interpreter in which hangwatch is not
installed and that is older than ours, so this package is written for Python 3.8 and imports the standard library, and
torch where the program itself has already imported it. It never raises into the program and never prints.
"""

from __future__ import annotations

import sys

#: The name under which the one live copy of this package is known, however it was loaded.
NAME = "_hangwatch_probe"


class HangDetected(RuntimeError):
    """This job hangs; raised in a rank by ``hangwatch run --on-hang raise``. Its text is the verdict."""


HangDetected.__module__ = "hangwatch"  # where a program finds it

_live = sys.modules.setdefault(NAME, sys.modules[__name__])

if _live is sys.modules[__name__]:
    try:
        from . import hook

        hook.install()
    except Exception:
        pass  # no probe, no harm; the agent sees that the rank has no beat


def report(step: object = None, loss: object = None, lr: object = None, grad_norm: object = None) -> None:
    """Take what ``hangwatch.report`` was given; does nothing in a process that is not probed."""
    live = sys.modules[NAME]
    if live is sys.modules[__name__]:
        hook.report(step, loss, lr, grad_norm)
    else:
        live.report(step, loss, lr, grad_norm)
