"""Turns growing output into logged steps: bytes in, steps out, whatever the bytes are. Pure, bounded in memory and time.

Lines end with a newline or a carriage return (progress bars). Only lines with one of ``lines.NEEDLES`` are decoded.
If a part of the output has too many of them, an evenly spread sample is read, including the last one. A line longer
than ``LINE_LIMIT_BYTES`` is no log line and is skipped.
"""

from __future__ import annotations

import re

import msgspec

from hangwatch.model.telemetry import LoggedStep
from hangwatch.training.sources.lines import NEEDLES, parse_line

LINE_LIMIT_BYTES = 16 << 10
#: How large pieces of output are (what fits into a processor's cache is searched several times faster), and how many lines
#: are parsed of one, twice at the most.
PIECE_BYTES = 256 << 10
LINES_LIMIT = 24
#: tqdm's bar, which the Trainer draws for every step, and how far before a line that names no step it is looked for.
_BAR = re.compile(rb"\| (\d{1,12}/\d{1,12}) \[")
_BAR_BEFORE_BYTES = 1024
#: What torchrun puts before each line where it passes on the output of several ranks (``--tee``, torch 2.13,
#: ``elastic/agent/server/local_elastic_agent.py``: role, ``default`` unless told otherwise, and local rank).
_PREFIX = re.compile(rb"\s{0,8}\[(?:default|rank|trainer|worker|gpu)(\d{1,6})\]:")


class LogStream:
    """One file's or pipe's output.

    ``name``: becomes the steps' source. ``sampled``: False to read every line, however many. Facts that name no step
    (DeepSpeed's OVERFLOW lines) are added to the next line with a loss.
    """

    def __init__(self, name: str, rank: int | None = None, *, sampled: bool = True) -> None:
        self._name = name
        self._rank = rank
        self._limit = LINES_LIMIT if sampled else None
        self._rest = b""
        self._passed = b""
        self._in_long_line = False
        self._overflows = 0
        self._overflow: LoggedStep | None = None

    def feed(self, data: bytes, at_ns: int) -> list[LoggedStep]:
        """Return the steps in newly written bytes, in order; an incomplete line is kept for the next call."""
        found: list[LoggedStep] = []
        for start in range(0, len(data), PIECE_BYTES):
            piece, end = self._complete(data[start : start + PIECE_BYTES] if len(data) > PIECE_BYTES else data)
            for first, last in find_lines(piece, end, self._limit):
                line = piece[first:last]
                step = parse_line(line.decode("utf-8", "replace"))
                if step is not None and (step := self._finish(step, line, at_ns)) is not None:
                    found.append(step if step.step is not None else self._with_bar(step, piece, first, last))
            self._passed = (self._passed + piece[max(0, end - _BAR_BEFORE_BYTES) : end])[-_BAR_BEFORE_BYTES:]
        return found

    def _complete(self, piece: bytes) -> tuple[bytes, int]:
        """Return the piece with the rest of the previous one before it, and the end of its last whole line."""
        if self._in_long_line:
            end = min((end for end in (piece.find(b"\n"), piece.find(b"\r")) if end >= 0), default=-1)
            if end < 0:
                return b"", 0
            piece, self._in_long_line = piece[end + 1 :], False
        data = self._rest + piece if self._rest else piece
        newline = data.rfind(b"\n")
        end = max(newline, data.rfind(b"\r", newline + 1)) + 1
        self._rest = data[end:]
        if len(self._rest) > LINE_LIMIT_BYTES:
            self._rest, self._in_long_line = b"", True
        return data, end

    def _finish(self, step: LoggedStep, line: bytes, at_ns: int) -> LoggedStep | None:
        """Return the step with where and when it was read, and with the facts of lines before it."""
        if step.overflow and step.step is None:
            self._overflows += 1
            self._overflow = step
            return None
        values: dict[str, object] = {}
        if self._overflow is not None and step.loss is not None:
            if step.skipped_steps is None:
                values["skipped_steps"] = self._overflows
            values |= {"overflow": True, "loss_scale": step.loss_scale or self._overflow.loss_scale}
            values["texts"] = {**self._overflow.texts, **step.texts}
            self._overflow = None
        return msgspec.structs.replace(step, **values, source=self._name, at_ns=at_ns, rank=self._whose(step, line))

    def _with_bar(self, step: LoggedStep, piece: bytes, first: int, last: int) -> LoggedStep:
        """Return a step that has no number with the position of the progress bar beside it."""
        before = (self._passed + piece[max(0, first - _BAR_BEFORE_BYTES) : first])[-_BAR_BEFORE_BYTES:]
        bars = _BAR.findall(before + piece[first:last])
        return msgspec.structs.replace(step, texts={**step.texts, "bar": bars[-1].decode()}) if bars else step

    def _whose(self, step: LoggedStep, line: bytes) -> int | None:
        """Return the rank that a line belongs to; None for the job.

        DeepSpeed's rank 0 speaks for the job, and so do lines that name no rank.
        """
        if self._rank is not None:
            return self._rank
        prefix = _PREFIX.match(line)
        return int(prefix[1]) if prefix is not None else step.rank or None


def find_lines(data: bytes, end: int, limit: int | None = LINES_LIMIT) -> list[tuple[int, int]]:
    """Return where in ``data[:end]`` the lines are that may report a step.

    If there are more than ``limit``, a sample that includes the last one.
    """
    found: dict[int, int] = {}
    for needle in NEEDLES:
        position, stride, seen = data.find(needle, 0, end), 0, 0
        while position >= 0:
            first, last = _line_around(data, position, end)
            found[first] = last
            seen += 1
            if seen == limit:
                stride = (end - last) // limit
            position = data.find(needle, max(last, position + stride), end)
        if stride:
            first, last = _line_around(data, data.rfind(needle, 0, end), end)
            found[first] = last
    return sorted((first, last) for first, last in found.items() if last - first <= LINE_LIMIT_BYTES)


def _line_around(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return where the line around ``position`` begins and ends, within the longest length of a line."""
    low, high = max(position - LINE_LIMIT_BYTES - 1, 0), min(position + LINE_LIMIT_BYTES + 1, end)
    first = max(data.rfind(b"\n", low, position), low - 1) + 1
    last = data.find(b"\n", position, high)
    last = last if last >= 0 else high
    returned = data.find(b"\r", position, last)
    return max(first, data.rfind(b"\r", first, position) + 1), returned if returned >= 0 else last
