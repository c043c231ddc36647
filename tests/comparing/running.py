"""Runs each tool on the dumps of each hang."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from comparing.judging import Judged, judge
from comparing.reading import Output, Tool
from scenarios.catalogue import Entry
from scenarios.dumping import unpack

#: They need a second or two.
LIMIT_S = 120.0


def compare(entries: Sequence[Entry], tools: Sequence[Tool]) -> Iterator[tuple[Entry, list[Judged]]]:
    """Each hang with a row a tool, one command at a time."""
    for entry in entries:
        with tempfile.TemporaryDirectory(prefix="hangwatch-compare-") as folder:
            unpack(entry, Path(folder))
            yield entry, [_one(entry, tool, Path(folder)) for tool in tools]


def run_tool(tool: Tool, folder: Path) -> Output:
    """What a tool prints of a folder of dumps."""
    environment = {**os.environ, **tool.environment}
    command = tool.command(folder)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return Output("", "", None)
    return Output(done.stdout, done.stderr, done.returncode)


def _one(entry: Entry, tool: Tool, folder: Path) -> Judged:
    began = time.perf_counter()
    output = run_tool(tool, folder)
    seconds = time.perf_counter() - began
    return judge(entry, tool.name, tool.read(output), folder, output.status, seconds)
