"""A bound on the memory that hostile input may take. May import the standard library only.

Bytes that ask for more than they are worth (an index that makes the unpickler allocate gigabytes before it looks any further,
references to references, brackets without end) cannot be told by looking at them, so the allocations themselves are bounded.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

#: Decoding may take this many times the size of the input, and this much besides. Real dumps take up to eight times theirs; of
#: what comes out of an archive the input is the archive, and the rest is covered by what is granted besides.
MEMORY_FACTOR = 32
MEMORY_FLOOR_BYTES = 256 << 20


@contextlib.contextmanager
def bounded_memory(input_bytes: int) -> Iterator[None]:
    """Within it, the process may take ``MEMORY_FACTOR`` times ``input_bytes`` and ``MEMORY_FLOOR_BYTES`` more than it has now.

    Beyond that allocations fail, in all of its threads: MemoryError. For commands and worker processes: a child that is
    started meanwhile inherits the limit, so the agent's own process never comes here.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space_bytes() + MEMORY_FACTOR * input_bytes + MEMORY_FLOOR_BYTES
    if any(limit != resource.RLIM_INFINITY and limit < wanted for limit in (soft, hard)):
        yield  # a stricter one is set already
        return
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split(maxsplit=1)[0]) * os.sysconf("SC_PAGE_SIZE")
