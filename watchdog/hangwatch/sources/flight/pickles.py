"""Pickles of plain data, and of nothing else. May import the standard library only.

The flight recorder's dumps are pickles of dictionaries, lists, tuples, strings and numbers (torch's C++ pickler writes
protocol 2). Anything that names a class, a function or a persistent object is refused before it is looked up.
"""

from __future__ import annotations

import io
import pickle

MAX_PICKLE_BYTES = 256 << 20


class FlightFormatError(ValueError):
    """Input that is no flight-recorder dump; the message is one line for people."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> object:
        """Refuse every global: plain data needs none."""
        raise FlightFormatError(f"the pickle asks for {module[:80]}.{name[:80]}, and a dump needs only plain data")

    def persistent_load(self, pid: object, /) -> object:
        """Refuse references to things outside the pickle."""
        del pid
        raise FlightFormatError("the pickle refers to a persistent object, and a dump needs only plain data")


class _Whole(io.BytesIO):
    """Bytes that the unpickler is shown all at once: else it asks for every few of them, which takes four times as long."""

    def peek(self, size: int = 0, /) -> bytes:
        """All that is left."""
        del size
        return self.getvalue() if self.tell() == 0 else b""


def load_pickle(data: bytes) -> object:
    """Unpickle builtin containers, strings, bytes, numbers, booleans and None.

    Raises ``FlightFormatError`` for anything else: a pickle that names a global, one that is cut or malformed, one of
    more than ``MAX_PICKLE_BYTES``.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise FlightFormatError(f"the pickle has {len(data)} bytes, more than {MAX_PICKLE_BYTES}")
    try:
        loaded: object = _PlainUnpickler(_Whole(data), encoding="utf-8", errors="replace").load()
    except FlightFormatError:
        raise
    except MemoryError:
        raise FlightFormatError("to unpickle it takes more memory than its size justifies") from None
    except EOFError:
        raise FlightFormatError("the pickle breaks off: it was not written or copied to its end") from None
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
            raise FlightFormatError("the pickle breaks off: it was not written or copied to its end") from None
        raise FlightFormatError(
            f"this is no pickle of plain data: {str(error)[:200] or type(error).__name__}"
        ) from None
    return loaded
