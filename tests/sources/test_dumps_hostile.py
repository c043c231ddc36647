"""Hostile files: whatever the bytes, a value or a typed error, in bounded memory, and nothing is ever run."""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from dump_jobs import straggling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.sources.dumps.contents import UNPACKED_FACTOR
from hangwatch.sources.dumps.decode import (
    MEMORY_FACTOR,
    MEMORY_FLOOR_BYTES,
    Decoded,
    UnknownContentError,
    decode_content,
)
from hangwatch.sources.flight.pickles import FlightFormatError
from hangwatch.sources.stacks.samples import StackFormatError

WHOLE = pickle.dumps(straggling(2, 1)[0], protocol=2)
_OPCODES = bytes(range(0x80, 0x99)) + b"()].}]0123BCDFGIJKLMNPQRSTUVXabcdeghijlopqrstu"


def decode(data: bytes) -> Decoded | None:
    """The value, None for a typed error."""
    try:
        return decode_content(data)
    except (FlightFormatError, StackFormatError, UnknownContentError):
        return None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, len(WHOLE)), junk=st.binary(max_size=8), drop=st.integers(0, 8))
def test_changed_dumps(at: int, junk: bytes, drop: int) -> None:
    """A dump with any bytes replaced, left out or put in."""
    decode(WHOLE[:at] + junk + WHOLE[at + drop :])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(list(_OPCODES)) | st.integers(0, 255), max_size=60))
def test_random_programs_of_the_unpickler(opcodes: list[int]) -> None:
    """Pickles are programs: random ones, of valid operations mostly."""
    decode(b"\x80\x02" + bytes(opcodes) + b".")


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(
        [
            b"{", b"[", b"Process 7: x\nThread 7 (idle)\n    ", b'[{"frames": [',
            b"=== Rank 0: http://n:1/handler/dump_traceback? ===\nThread 0x1 (most recent call first):\n  File ",
        ]
    ),
    st.binary(max_size=60),
)  # fmt: skip
def test_other_forms(head: bytes, rest: bytes) -> None:
    """JSON, py-spy's text and the debug server's with anything in them."""
    decode(head + rest)


def _nested_sizes() -> bytes:
    """Sizes that refer to one another, each twice to the one below it: 2**40 lists to whoever follows all of them."""
    sizes: list[object] = [[1]]
    for _ in range(40):
        sizes = [sizes, sizes]
    one = straggling(2, 1)[0]
    one["entries"][0]["input_sizes"] = sizes
    return pickle.dumps(one, protocol=2)


def _one_list(entries: int) -> bytes:
    """Entries that all refer to one list of sizes and one call site, as long as they are many."""
    one = straggling(2, 1)[0]
    sizes, frames = [[7]] * entries, [{"name": "f", "filename": "g", "line": 1}] * entries
    one["entries"] = [
        one["entries"][0] | {"record_id": i, "input_sizes": sizes, "frames": frames} for i in range(entries)
    ]
    return pickle.dumps(one, protocol=2)


def _repeated(entries: int) -> bytes:
    """Entries that all are one."""
    one = straggling(2, 1)[0]
    one["entries"] = [one["entries"][0]] * entries
    return pickle.dumps(one, protocol=2)


BOMBS = {
    "memo": b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of 2**31 places
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",  # a terabyte that is not there
    "sets": b"\x80\x04" + b"\x8f" * 1_500_000,  # 200 times their bytes
    "nested-sizes": _nested_sizes(),
    "one-list": _one_list(20_000),
    "repeated": _repeated(100_000),
    "depth": b"[" * 200_000,
    "entries": b'{"entries": [' + b"[]," * 300_000 + b"[]]}",
    "digits": b'{"entries": [], "pg_status": {"0": {"last_enqueued_collective": ' + b"9" * 3_000_000 + b"}}}",
    "long": b"\x80\x02}U\x07entries\x8b" + struct.pack("<I", 2_000_000) + b"\x7f" * 2_000_000 + b"s.",
}


def _zipped(plain: bytes) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for rank in range(3):
            archive.writestr(f"rank_{rank}", plain)
    return raw.getvalue()


def _tarred(plain: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for rank in range(3):
            member = tarfile.TarInfo(f"rank_{rank}")
            member.size = len(plain)
            archive.addfile(member, io.BytesIO(plain))
    return raw.getvalue()


PACKED = {
    "zip": _zipped,
    "gzip": gzip.compress,
    "tar.xz": lambda plain: lzma.compress(_tarred(plain)),
    "gzip in zip": lambda plain: _zipped(gzip.compress(plain)),
}
#: In a process of its own, because what one has taken before tells nothing: the most address space it has had more than now.
_MEASURE = """
import sys
from hangwatch.sources.dumps.decode import UnknownContentError, decode_content
from hangwatch.sources.dumps.decode import MEMORY_FACTOR, MEMORY_FLOOR_BYTES
from hangwatch.sources.flight.pickles import FlightFormatError
from hangwatch.sources.stacks.samples import StackFormatError
import resource
data = sys.stdin.buffer.read()
now = lambda name: next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(name)) << 10
before, limit = now("VmSize:"), resource.getrlimit(resource.RLIMIT_AS)
try:
    decode_content(data)
except (FlightFormatError, StackFormatError, UnknownContentError) as error:
    print(str(error).splitlines()[0], file=sys.stderr)
assert resource.getrlimit(resource.RLIMIT_AS) == limit
print(now("VmPeak:") - before)
"""


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.usefixtures("real")
def test_bombs_take_no_more_than_is_stated(bomb: str) -> None:
    """A few bytes that ask for gigabytes are refused before they get them, and the limit is lifted again."""
    data = BOMBS[bomb]
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURE], input=data, capture_output=True, check=True, timeout=120
    )  # to decode an honest file of that size takes a second
    assert int(ended.stdout) <= MEMORY_FACTOR * len(data) + MEMORY_FLOOR_BYTES


@pytest.mark.parametrize("packing", PACKED)
@pytest.mark.usefixtures("real")
def test_packed_bombs(packing: str, tmp_path: Path) -> None:
    """A small archive of large files is refused by name, and takes no more than is stated of its own size."""
    path = tmp_path / "packed"
    path.write_bytes(PACKED[packing](b'{"entries": [' + b"[]," * (16 << 20) + b"[]]}"))
    program = _MEASURE.replace(
        "data = sys.stdin.buffer.read()", "from hangwatch.sources.dumps.contents import find_contents"
    )
    program = program.replace("decode_content(data)", "told = [decode_all_of(sys.argv[1])]").replace(
        "now = lambda",
        "from pathlib import Path\nfrom hangwatch.sources.dumps.gathering import decode_all\n"
        "decode_all_of = lambda path: [print(one, file=sys.stderr) for _, one in decode_all(find_contents(Path(path)))]\n"
        "now = lambda",
    )
    ended = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True, timeout=300)
    assert int(ended.stdout) <= (MEMORY_FACTOR + UNPACKED_FACTOR) * path.stat().st_size + MEMORY_FLOOR_BYTES
    assert b"it has more than" in ended.stderr
