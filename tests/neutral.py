"""Makes recordings independent of the machine they were made on."""

from __future__ import annotations

import re
import sys
import sysconfig
import tempfile
from collections.abc import Mapping

from support import SOURCE_ROOT

#: Where recordings have their libraries.
PACKAGES = "/opt/venv/lib/python3.11/site-packages"


def neutral(text: str, replacements: Mapping[str, str]) -> str:
    """The text with the paths of this machine replaced; ``replacements`` are those of the recording, and come first."""
    shown = {
        **replacements,
        # An environment may take libraries from another one.
        **{path: PACKAGES for path in (sysconfig.get_path("purelib"), *sys.path) if path.endswith("/site-packages")},
        sysconfig.get_path("stdlib"): "/usr/lib/python3.11",
        str(SOURCE_ROOT / "hangwatch" / "demos"): "/srv/train",
        str(SOURCE_ROOT): PACKAGES,
        sys.prefix: "/opt/venv",
        tempfile.gettempdir(): "/tmp",
    }
    for local_path, neutral_path in shown.items():
        text = text.replace(local_path, neutral_path)
    return re.sub(r"lib/python3\.\d+", "lib/python3.11", text)
