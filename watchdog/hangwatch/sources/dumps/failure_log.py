"""What the output of a failed job says of its ranks: tracebacks, exit codes, messages of NCCL's watchdog. Pure.

May import hangwatch.model, the analysis and the standard library. Read from torch 2.4 to 2.13: torch's own hook puts
``[rank1]:`` before each line of a traceback (``distributed_c10d.py``, ``_distributed_excepthook``), torchrun ends
with a table of those that failed (``elastic/multiprocessing/errors``), Gloo aborts with ``op.preamble.length <=
op.nbytes`` (``gloo/transport/tcp``), and NCCL's watchdog names the operation that timed out
(``ProcessGroupNCCL.cpp``, ``WorkNCCL``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from hangwatch.analysis.ranks.failing import is_lost_peer
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import DEFAULT_GROUP, FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.processes import ExitStatus, ProcessSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from hangwatch.sources.flight.entries import split_name
from hangwatch.sources.redaction import redact_text

#: The prefix by torchrun's ``--tee`` and by torch's hook; if a line has several, the last one is the rank.
_PREFIX = re.compile(r"\s{0,8}(?:\d{1,6}: ?)?(?:\[[a-z]{1,20}\d{1,6}\]:)*\[(?:rank|default)(\d{1,6})\]:(.*)", re.DOTALL)
_FRAME = re.compile(r'  File "([^"]{1,1000})", line (\d{1,9}), in (.{1,300})')
_ERROR = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
_DOES_NOT_FIT = re.compile(r"op\.preamble\.length <= op\.nbytes\. \d+ vs \d+")
_TABLE = re.compile(r"\s{0,8}(rank|exitcode)\s{1,8}: (-?\d{1,9})\b")
_TIMED_OUT = re.compile(
    r"\bRank (\d{1,6})\].{0,80}Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,60}), "
    r"NumelIn=(\d{1,18}), NumelOut=(\d{1,18})"
)
_STATUS = re.compile(
    r"\bRank (\d{1,6})\].{0,200}last enqueued (?:NCCL )?work: (\d{1,18}), last completed (?:NCCL )?work: (\d{1,18})"
)
#: torchrun's, of an attempt that another one follows.
_RESTARTS = "will restart worker group"
_WATCHDOG = "Watchdog caught collective operation timeout"
_WORLD_LIMIT = 100_000
_FRAMES_LIMIT = 200
_LINE_LIMIT = 4000


class _Rank:
    """What was read of one rank so far. ``stack``, ``error``: of its first exception, the origin of a chain."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.open: list[Frame] | None = None
        self.error: tuple[str, ...] = ()
        self.code: int | None = None
        self.operation: tuple[int, str, int, int] | None = None
        self.status: tuple[int, int] | None = None

    def read(self, line: str) -> None:
        """Take in one line of the rank's own output."""
        if line.startswith("Traceback (most recent call last)"):
            self.open = []
        elif self.open is not None and (call := _FRAME.match(line)):
            self.open.append(Frame(call[3], call[1], int(call[2])))
        elif self.open and line.startswith("    ") and self.open[-1].source is None:
            if not set(line.strip()) <= set("^~"):
                last = self.open[-1]
                self.open[-1] = Frame(last.function, last.file, last.line, source=redact_text(line.strip()))
        elif self.open and not line.startswith(" ") and _ERROR.match(line):
            if not self.error:
                last = self.open[-1]
                where = f"{last.function} ({last.file}:{last.line})"
                self.frames, self.error = self.open[-_FRAMES_LIMIT:], (where, redact_text(line.strip()[:400]))
            self.open = None


def parse_failure_log(lines: Iterable[str], *, job: str, at_ns: int) -> Capture | None:
    """Return the capture of the job's last attempt; None unless a rank failed in a collective.

    ``at_ns``: when the output was last written to.
    """
    ranks: defaultdict[int, _Rank] = defaultdict(_Rank)
    message: str | None = None
    row: int | None = None
    for text in lines:
        line = text[:_LINE_LIMIT].rstrip("\r\n")
        if _RESTARTS in line:
            ranks.clear()
            message = row = None
        if found := _DOES_NOT_FIT.search(line):
            message = found[0]
        for timed_out in _TIMED_OUT.finditer(line):
            seq, op, given, got = timed_out[2], timed_out[3], timed_out[4], timed_out[5]
            ranks[int(timed_out[1])].operation = (int(seq), op, int(given), int(got))
        for status in _STATUS.finditer(line):
            ranks[int(status[1])].status = (int(status[2]), int(status[3]))
        if (prefixed := _PREFIX.match(line)) and int(prefixed[1]) < _WORLD_LIMIT:
            ranks[int(prefixed[1])].read(prefixed[2].removeprefix(" "))
        elif entry := _TABLE.match(line):
            if entry[1] == "rank":
                row = int(entry[2])
            elif row is not None and row < _WORLD_LIMIT:
                ranks[row].code = int(entry[2])
    if not ranks:
        return None
    captures = tuple(_capture(number, rank, message, at_ns, max(ranks)) for number, rank in sorted(ranks.items()))
    if not any(rank.terminated or is_lost_peer(rank.log_error) for rank in captures):
        return None
    return Capture(Job(job, max(ranks) + 1, launcher="unknown"), at_ns, captures, failed=True)


def _capture(number: int, rank: _Rank, message: str | None, at_ns: int, last: int) -> RankCapture:
    terminated = rank.code == -6 and message is not None and not rank.error
    error = (_WATCHDOG,) if rank.operation is not None else (message,) if terminated and message else rank.error
    exits = () if terminated or rank.error or rank.operation is not None else tuple(_exit(rank, at_ns))
    main = ThreadStack(0, "MainThread", is_main=True, active=False, owns_gil=False, frames=tuple(rank.frames[::-1]))
    return RankCapture(
        RankIdentity(number, 0, 0.0),
        processes=exits,
        stacks=(StackSample(at_ns, (main,)),) if rank.frames else (),
        flight=_flight(rank, at_ns, last) if rank.operation is not None or rank.status is not None else None,
        log_error=error,
        terminated=terminated or rank.operation is not None,
    )


def _exit(rank: _Rank, at_ns: int) -> Iterator[ProcessSample]:
    if rank.code is not None:
        end = ExitStatus(code=rank.code) if rank.code >= 0 else ExitStatus(signal=-rank.code)
        yield ProcessSample(at_ns, 0, "gone", exit=end)


def _flight(rank: _Rank, at_ns: int, last: int) -> FlightRecord:
    """Return the operation that timed out and the rank's progress, of the default group, as the line names no other."""
    group = Group("0", tuple(range(last + 1)), DEFAULT_GROUP)
    operations: tuple[Operation, ...] = ()
    enqueued, completed = rank.status or (0, 0)
    if rank.operation is not None:
        seq, op, given, got = rank.operation
        name = split_name(f"nccl:{op.lower()}")[1]
        operations = (
            Operation(
                0, group, seq, name, False, at_ns, backend="nccl",
                input_sizes=((given,),), output_sizes=((got,),), input_dtypes=("",),
            ),
        )  # fmt: skip
        enqueued, completed = seq, seq - 1  # later operations are recorded nowhere
    progress = (GroupProgress(group, enqueued, -1, completed),)
    return FlightRecord(at_ns, "file", "", operations, progress, whole=False)
