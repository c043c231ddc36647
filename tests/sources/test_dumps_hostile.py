"""Hostile files: whatever the bytes, a value or a typed error, in bounded memory, and nothing is ever run."""

from __future__ import annotations

import pickle
import resource
import struct

import pytest
from dump_jobs import straggling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.sources.dumps.decode import RankDump, StackDump, UnknownContentError, decode_content
from hangwatch.sources.pickles import FlightFormatError
from hangwatch.sources.stacks import StackFormatError

WHOLE = pickle.dumps(straggling(2, 1)[0], protocol=2)
_OPCODES = bytes(range(0x80, 0x99)) + b"()].}]0123BCDFGIJKLMNPQRSTUVXabcdeghijlopqrstu"


def decode(data: bytes) -> RankDump | StackDump | None:
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
@given(st.sampled_from([b"{", b"[", b"Process 7: x\nThread 7 (idle)\n    ", b'[{"frames": [']), st.binary(max_size=60))
def test_other_forms(head: bytes, rest: bytes) -> None:
    """JSON and py-spy's text with anything in them."""
    decode(head + rest)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of 2**31 places
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",  # a terabyte that is not there
        b"\x80\x04" + b"\x8f" * 1_500_000,  # sets, 200 times their bytes
        b"[" * 200_000,
        b'{"entries": [' + b"[]," * 300_000 + b"[]]}",
    ],
    ids=["memo", "bytearray", "sets", "depth", "entries"],
)
def test_bombs_take_no_more_than_is_stated(bomb: bytes) -> None:
    """A few bytes that ask for gigabytes are refused before they get them, and the limit is lifted again."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limit = resource.getrlimit(resource.RLIMIT_AS)
    decode(bomb)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) << 10
    assert grown <= 32 * len(bomb) + (256 << 20)
    assert resource.getrlimit(resource.RLIMIT_AS) == limit
