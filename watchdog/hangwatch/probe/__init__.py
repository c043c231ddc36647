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

_live = sys.modules.setdefault(NAME, sys.modules[__name__])
_telemetry: dict[str, str | int | float | bool | None] = {}
_TELEMETRY_LIMIT = 64

if _live is sys.modules[__name__]:
    try:
        from . import hook

        hook.install()
    except Exception:
        pass  # no probe, no harm; the agent sees that the rank has no beat


def report(**values: str | int | float | bool | None) -> None:
    """Give the agent values of training (``loss``, ``step`` ...): they ride in the beat's ``telemetry`` from now on.

    Later values replace earlier ones of the same name. Values of other types, and names beyond the 64th, are ignored;
    in a process that is not a probed rank nothing happens.
    """
    telemetry = _live._telemetry
    for name, value in values.items():
        known = value is None or isinstance(value, (str, int, float, bool))
        if known and (name in telemetry or len(telemetry) < _TELEMETRY_LIMIT):
            telemetry[name] = value[:256] if isinstance(value, str) else value
