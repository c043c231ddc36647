"""Versions of a rank's training libraries, by the metadata of the folder its torch was loaded from.

May import the standard library and hangwatch.sources' own parts. Nothing is imported from there: the name of its
``dist-info`` folder has a distribution's version. The folder is where the process maps its libraries from, so neither
a virtual environment nor a wrapper hides it.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable

from hangwatch.sources.proc.files import read_whole

#: The distributions on which a verdict may depend.
LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed", "peft", "trl")

_PACKAGES = re.compile(rb" (/[^\n]*?/(?:site|dist)-packages)/")
_LARGEST_MAPS_BYTES = 8 << 20


def read_versions(pid: int) -> dict[str, str]:
    """Return the versions of ``LIBRARIES`` in a process's environment, by distribution; none if not visible."""
    return find_versions(parse_maps(read_whole(f"/proc/{pid}/maps", _LARGEST_MAPS_BYTES) or b""))


def parse_maps(data: bytes) -> tuple[str, ...]:
    """Return the package folders of a process's mapped libraries (``/proc/PID/maps``), in order of appearance."""
    return tuple(dict.fromkeys(found.decode(errors="replace") for found in _PACKAGES.findall(data)))


def find_versions(folders: Iterable[str]) -> dict[str, str]:
    """Return the versions of ``LIBRARIES`` in these package folders; the first folder that has one counts."""
    path = list(folders)
    found: dict[str, str] = {}
    for name in LIBRARIES:
        for distribution in importlib.metadata.distributions(name=name, path=path):
            if isinstance(version := distribution.metadata["Version"], str):
                found.setdefault(name, version)
    return found
