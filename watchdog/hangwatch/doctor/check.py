"""One finding of ``hangwatch doctor``. Imports msgspec only."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct, frozen=True):
    """One finding. ``warning``: hangwatch works with less information. ``repair`` is one line, empty if there is none."""

    name: str
    state: Literal["ok", "warning", "failed"]
    says: str
    repair: str = ""
