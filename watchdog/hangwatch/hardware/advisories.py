"""Versions of NCCL that have hung for others, by public reports: worth knowing if no rank is at fault. Pure."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True)
class Advisory:
    """``first`` and ``last``: the affected versions, both included. ``says``: what hangs, and what repairs it."""

    first: Version
    last: Version
    says: str
    url: str


ADVISORIES = (
    Advisory(
        (2, 28, 3),
        (2, 28, 8),
        "NVIDIA's resiliency extension must not be used with 2.28.3 to 2.28.8 because of in-process restart",
        "https://github.com/NVIDIA/nvidia-resiliency-ext",
    ),
    Advisory(
        (2, 28, 9),
        (2, 28, 9),
        "CUDA graphs with collectives across nodes; fixed in 2.30.4, absent without graphs",
        "https://github.com/vllm-project/vllm/issues/52504",
    ),
    Advisory(
        (2, 28, 9),
        (2, 29, 2),
        (
            "on aarch64 one rank spins in ncclLocalOpAppend because the proxy thread has lost its free "
            "operations; fixed in 2.29.3"
        ),
        "https://github.com/NVIDIA/nccl/issues/2353",
    ),
    Advisory(
        (2, 29, 2),
        (2, 29, 2),
        "PyTorch skipped 2.29.2 because of a hang that 2.29.3 fixes",
        "https://github.com/pytorch/pytorch/pull/174338",
    ),
)


def advisories(version: str) -> tuple[Advisory, ...]:
    """Return what is known of a version such as ``2.28.9``; nothing for a malformed one."""
    parts = version.split("+", maxsplit=1)[0].split(".")
    if not all(part.isdecimal() for part in parts):
        return ()
    number = tuple(map(int, parts))
    return tuple(one for one in ADVISORIES if one.first <= number <= one.last)
