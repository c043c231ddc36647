"""The words for what a rank does, the same on the page, in tables, in JSON and in metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: What each state means, the most important first. Documents and metrics hold the words as they are, and so do texts.
RANK_STATES: Mapping[str, str] = MappingProxyType(
    {
        "lost": "the process is gone",
        "stopped": "stopped by a signal or a frozen cgroup",
        "stuck": "makes no progress, and does not wait for another rank",
        "busy": "works outside any collective",
        "waiting": "waits for other ranks",
        "communicating": "in a collective",
        "running": "outside any collective",
        "unprobed": "runs without the probe",
        "unknown": "no information",
    }
)
