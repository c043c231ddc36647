"""One finding of ``hangwatch doctor``. Imports msgspec only."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct, frozen=True):
    """One finding. ``warning``: hangwatch works, but sees less. ``repair`` is one line."""

    name: str
    state: Literal["ok", "warning", "failed"]
    says: str
    repair: str = ""
