"""Everything that reads foreign bytes, as functions from bytes to nothing: they raise only what is no typed error."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from hangwatch.hardware.sources.kernel_log import parse_line, parse_records
from hangwatch.hardware.sources.ras.ras_json import RasFormatError, parse_status_json
from hangwatch.hardware.sources.ras.ras_text import parse_status_text
from hangwatch.sources.dumps.archives import ArchiveError, read_compressed, read_tar, read_zip
from hangwatch.sources.dumps.contents import Aside, Content
from hangwatch.sources.dumps.decode import UnknownContentError, bounded_memory, decode_content
from hangwatch.sources.dumps.gathering import gather
from hangwatch.sources.dumps.pyspy_text import parse_pyspy_text
from hangwatch.sources.flight.pickles import FlightFormatError, load_pickle
from hangwatch.sources.proc.delays import parse_core_ns, parse_throttled_ns
from hangwatch.sources.stacks.profile import parse_profile
from hangwatch.sources.stacks.samples import StackFormatError
from ras_server import rank, report_json, report_text

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
_TYPED = (FlightFormatError, StackFormatError, UnknownContentError, ArchiveError)
_LIMIT_BYTES = 1 << 24


def read_pickle(data: bytes) -> None:
    """The unpickler alone, within the bound that readers of files have."""
    with contextlib.suppress(*_TYPED), bounded_memory(len(data)):
        load_pickle(data)


def read_content(data: bytes) -> None:
    """One file of any form."""
    with contextlib.suppress(*_TYPED):
        decode_content(data)


def read_text(data: bytes) -> None:
    """py-spy's text."""
    with contextlib.suppress(*_TYPED):
        parse_pyspy_text(data, at_ns=1)


def read_archive(data: bytes) -> None:
    """All kinds of packing."""
    for read in (read_tar, read_zip):
        with contextlib.suppress(*_TYPED):
            for _ in read(io.BytesIO(data), _LIMIT_BYTES):
                pass
    with contextlib.suppress(*_TYPED):
        read_compressed(io.BytesIO(data), data[:64], _LIMIT_BYTES)


def read_job(data: bytes) -> None:
    """Two files of one job, cut where a certain byte is: what is compared between ranks must stand anything, too."""
    parts = data.split(b"\xff\xfe\xfd")[:4]
    files: list[Content | Aside] = [Content(f"rank_{i}", 1, data=part) for i, part in enumerate(parts)]
    gather(files, job="job", total=None, progress=lambda _done, _total: None)


def read_ras(data: bytes) -> None:
    """What answers at the port of NCCL's RAS may be anything."""
    for parse in (parse_status_json, parse_status_text):
        with contextlib.suppress(RasFormatError):
            parse(data, "127.0.0.1:28028")


def read_kernel_log(data: bytes) -> None:
    """Records of ``/dev/kmsg``, and lines of a log file: anybody on the machine may write into it."""
    list(parse_records(data.split(b"\0"), 0))
    parse_line(data.decode(errors="replace"), 0)


def read_profile(data: bytes) -> None:
    """py-spy's profile, which has names of threads, functions and files in it; and the kernel's words on delays."""
    with contextlib.suppress(*_TYPED):
        parse_profile(data, 11)
    parse_core_ns(data)
    parse_throttled_ns(data)


READERS: dict[str, Callable[[bytes], None]] = {
    "pickle": read_pickle,
    "content": read_content,
    "text": read_text,
    "archive": read_archive,
    "job": read_job,
    "ras": read_ras,
    "kernel": read_kernel_log,
    "profile": read_profile,
}


def _dumps() -> list[bytes]:
    """Dumps of a real job in both forms."""
    with tarfile.open(FIXTURES / "dumps" / "lock_gil_1st.tar.gz") as archive:
        streams = [archive.extractfile(member) for member in archive.getmembers()[:3]]
        found = [stream.read() for stream in streams if stream is not None]
    return [*found, json.dumps(pickle.loads(found[0])).encode()]  # noqa: S301  # our own fixture


def _texts() -> list[bytes]:
    return [path.read_bytes() for path in sorted((FIXTURES / "pyspy").rglob("rank_*"))]


def _archives() -> list[bytes]:
    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("rank_0")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"abc"))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank_0", "abc")
    return [tar.getvalue(), packed.getvalue(), gzip.compress(tar.getvalue())]


SEEDS: dict[str, Callable[[], Iterable[bytes]]] = {
    "pickle": _dumps,
    "content": lambda: [*_dumps(), *_texts()],
    "text": _texts,
    "archive": _archives,
    "job": lambda: [b"\xff\xfe\xfd".join(_dumps()[:3])],
    "ras": lambda: [
        report_json([rank(n, 10 + n, {"AllReduce": 7}) for n in range(2)]),
        report_text("1 rank is missing\n"),
    ],
    "profile": lambda: [
        json.dumps(
            {
                "shared": {
                    "frames": [{"name": "main", "file": "/srv/p.py", "line": 4, "col": None}, {"name": "thread"}]
                },
                "profiles": [{"name": 'Thread 11 "MainThread"', "samples": [[1, 0], [1]], "weights": [0.05, 0.05]}],
            }
        ).encode(),
        b"1 2 3",
        b"nr_periods 3\nthrottled_usec 7\n",
    ],
    "kernel": lambda: [(FIXTURES / "kernel" / "oom_kill.kmsg").read_bytes().replace(b"\n", b"\n\0")],
}
