"""Captures with the blocks and facts that today's hangwatch finds in their programs: they were taken by earlier ones."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from corpus.entries import Entry
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.stacks import Block, Fact, Frame, StackSample
from hangwatch.program.blocks import SourceTree
from hangwatch.sources.stacks.source_lines import annotate as read
from hangwatch.sources.stacks.source_lines import shorten


def annotate(capture: Capture, entry: Entry) -> Capture:
    """Return the capture with the blocks and facts of its lines read anew. A line that the program has no more keeps its own."""
    program = _Program(entry)
    return replace(capture, ranks=tuple(map(program.rank, capture.ranks)))


class _Program:
    def __init__(self, entry: Entry) -> None:
        self._file = f"/{entry.program}"
        self._tree = SourceTree(entry.text)
        self._text = entry.text.split("\n")
        self._known: dict[int, tuple[str, tuple[Block, ...], tuple[Fact, ...]]] = {}

    def rank(self, rank: RankCapture) -> RankCapture:
        tasks = tuple(replace(task, frames=self._frames(task.frames)) for task in rank.tasks)
        record = self._record(rank.flight) if rank.flight is not None else None
        return replace(rank, stacks=tuple(map(self._sample, rank.stacks)), tasks=tasks, flight=record)

    def _sample(self, sample: StackSample) -> StackSample:
        return replace(sample, threads=tuple(replace(t, frames=self._frames(t.frames)) for t in sample.threads))

    def _record(self, record: FlightRecord) -> FlightRecord:
        operations = (replace(o, frames=self._frames(o.frames)) if o.frames else o for o in record.operations)
        return replace(record, operations=tuple(operations))

    def _frames(self, frames: Iterable[Frame]) -> tuple[Frame, ...]:
        return tuple(self._frame(f) if f.source is not None and f.file.endswith(self._file) else f for f in frames)

    def _frame(self, frame: Frame) -> Frame:
        if frame.line not in self._known:
            text = self._text[frame.line - 1] if frame.line <= len(self._text) else ""
            self._known[frame.line] = shorten(text), *read(self._tree, frame.line)
        source, blocks, facts = self._known[frame.line]
        return replace(frame, blocks=blocks, facts=facts) if source == frame.source else frame
