"""Unpickles plain data, and nothing else. May import the standard library only.

The flight recorder's dumps are pickles of dictionaries, lists, tuples, strings and numbers (torch's C++ pickler
writes protocol 2). Anything that names a class, a function or a persistent object is refused before it is looked up.
"""

from __future__ import annotations

import io
import pickle

MAX_PICKLE_BYTES = 256 << 20


class FlightFormatError(ValueError):
    """Input that is no flight-recorder dump; the message is one line for people."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> object:
        """Refuse every class or function: plain data needs none."""
        raise FlightFormatError(f"the pickle asks for {module[:80]}.{name[:80]}, and a dump needs only plain data")

    def persistent_load(self, pid: object, /) -> object:
        """Refuse references to things outside the pickle."""
        del pid
        raise FlightFormatError("the pickle refers to a persistent object, and a dump needs only plain data")


class _Whole(io.BytesIO):
    """Bytes that the unpickler can peek at as a whole: otherwise it asks for a few at a time, which takes four times as long."""

    def peek(self, size: int = 0, /) -> bytes:
        """Return all bytes that are left."""
        del size
        return self.getvalue() if self.tell() == 0 else b""


def load_pickle(data: bytes) -> object:
    """Unpickle builtin containers, strings, bytes, numbers, booleans and None.

    Raises ``FlightFormatError`` for a pickle that names anything else, is cut or malformed, or exceeds
    ``MAX_PICKLE_BYTES``.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise FlightFormatError(f"the pickle has {len(data)} bytes, more than {MAX_PICKLE_BYTES}")
    try:
        loaded: object = _PlainUnpickler(_Whole(data), encoding="utf-8", errors="replace").load()
    except FlightFormatError:
        raise
    except MemoryError:
        raise FlightFormatError("unpickling it takes more memory than its size justifies") from None
    except EOFError:
        raise FlightFormatError("the pickle is truncated: it was not written or copied completely") from None
    except (
        pickle.UnpicklingError,
        ArithmeticError,
        AttributeError,
        ImportError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        if "truncated" in str(error):
            raise FlightFormatError("the pickle is truncated: it was not written or copied completely") from None
        raise FlightFormatError(f"not a pickle of plain data: {str(error)[:200] or type(error).__name__}") from None
    return loaded
