"""What must agree between ranks for two operations to be one, and operations in words. Pure."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import prod

from hangwatch.model.collectives import Operation

#: Operations whose inputs must have the same number of elements of one type on every rank. The others (gather,
#: scatter, all_to_all) may differ by role or by split, and only their type is compared; a barrier carries nothing.
_EVEN = frozenset({"all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter"})
_EMPTY = frozenset({"barrier", "monitored_barrier"})
#: NCCL records a tensor without a type for what a rank does not give: the outputs of a gather but on its destination, the inputs
#: of a scatter but on its source (``ProcessGroupNCCL::gather``, ``outputs.emplace_back()``, torch 2.12). ``c10::toString`` has
#: either name for an undefined type.
_NONE_GIVEN = frozenset({"Undefined", "UNKNOWN_SCALAR"})

Signature = tuple[str, tuple[str, ...], tuple[int, ...]]


def signature(operation: Operation) -> Signature:
    """Return what must agree between ranks for two operations to be one: name, element types, numbers of elements."""
    if operation.op in _EMPTY:
        return (operation.op, (), ())
    if operation.op in {"gather", "scatter"}:
        types = {*operation.input_dtypes, *operation.output_dtypes} - _NONE_GIVEN
        return (operation.op, tuple(sorted(types)), ())
    numels = tuple(prod(shape) for shape in operation.input_sizes) if operation.op in _EVEN else ()
    return (operation.op, operation.input_dtypes, numels)


def mark(operation: Operation) -> bytes:
    """Return the signature in 8 bytes, the same in every process."""
    return _hash(signature(operation))


@lru_cache(maxsize=1 << 16)
def _hash(agreed: Signature) -> bytes:
    return blake2b(repr(agreed).encode("utf-8", "backslashreplace"), digest_size=8).digest()


def describe(operation: Operation) -> str:
    """Return an operation for people: ``all_gather of Long[1]``."""
    carried = ", ".join(
        f"{dtype}{list(size)}".replace(" ", "")
        for dtype, size in zip(operation.input_dtypes, operation.input_sizes, strict=False)
    )
    return f"{operation.op} of {carried}" if carried else operation.op
