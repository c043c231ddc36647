"""Versions of NCCL that have hung for others, by public reports: worth knowing where no rank is at fault. Pure."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, ...]


@dataclass(frozen=True)
class Advisory:
    """``first`` and ``last`` are the versions it was seen on, both included; ``says`` on what, and what ends it."""

    first: Version
    last: Version
    says: str
    url: str


ADVISORIES = (
    Advisory(
        (2, 28, 3),
        (2, 28, 8),
        "NVIDIA's resiliency extension is not to be used with 2.28.3 to 2.28.8, for its in-process restart",
        "https://github.com/NVIDIA/nvidia-resiliency-ext",
    ),
    Advisory(
        (2, 28, 9),
        (2, 28, 9),
        "CUDA graphs whose collectives cross nodes; gone with 2.30.4, and without graphs",
        "https://github.com/vllm-project/vllm/issues/52504",
    ),
    Advisory(
        (2, 28, 9),
        (2, 29, 2),
        "on aarch64 one rank spins in ncclLocalOpAppend, as the proxy thread has lost its free operations; gone with 2.29.3",
        "https://github.com/NVIDIA/nccl/issues/2353",
    ),
    Advisory(
        (2, 29, 2),
        (2, 29, 2),
        "PyTorch skipped 2.29.2 for a hang that 2.29.3 mends",
        "https://github.com/pytorch/pytorch/pull/174338",
    ),
)


def advisories(version: str) -> tuple[Advisory, ...]:
    """What is known of a version such as ``2.28.9``; nothing of one that cannot be read."""
    parts = version.split("+", maxsplit=1)[0].split(".")
    if not all(part.isdecimal() for part in parts):
        return ()
    number = tuple(map(int, parts))
    return tuple(one for one in ADVISORIES if one.first <= number <= one.last)
