"""Waits in an NCCL communicator that torch has not made and has no record of: read from the stack. Pure.

Engines call NCCL by ctypes: ``PyNcclCommunicator`` over ``NCCLLibrary`` (``pynccl.py`` and ``pynccl_wrapper.py`` of
vLLM and SGLang). Its members are those of the process group that it is given, over which they exchange its unique id.
If that is no group of torch's (``StatelessProcessGroup``), they may be of any world. The host waits while a
communicator is made, in its first operations (NCCL connects in them), and where it synchronises right behind, as
engines do with a small ``all_reduce``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.places import bare
from hangwatch.analysis.stacks.waits import Wait, name_of_group
from hangwatch.model.stacks import Frame, once_a_stack

#: Functions of NCCL that may wait for the other members on the host (``nccl.h``, 2.29).
_CALL = re.compile(
    r"\bnccl(?:CommInitRank|CommInitRankConfig|CommSplit|AllReduce|AllGather|ReduceScatter|Reduce|Broadcast|Bcast|Send|Recv"
    r"|GroupEnd)\b"
)
#: The class of an object that has a communicator.
_OBJECT = re.compile(r"nccl\w*comm", re.IGNORECASE)
#: The library's wrapper and the communicator have at most so many frames: the next are the program's.
_DEPTH = 3
_MAKING = "ncclCommInitRank"


@once_a_stack
def read_communicator(frames: Sequence[Frame]) -> Wait | None:
    """Return the wait of a thread with these frames (deepest first) in such a communicator; None if it is in none."""
    first = frames[0] if frames else None
    if first is None:
        return None
    called = _CALL.search(bare(first)) or _CALL.search(first.source or "")
    synchronises = bare(first) == "synchronize" and "torch/" in first.file
    if called is None and not (synchronises and len(frames) > 1 and _has_communicator(frames[1])):
        return None
    own = [f for f in frames[:_DEPTH] if f is first or _has_communicator(f)]
    given = next((f for f in own if "group" in (f.locals or {})), None)
    makes = called is not None and called.group().startswith("ncclComm")
    made = makes or any(bare(f) == "__init__" for f in own)
    foreign = given is not None and not _is_of_torch(given)
    return Wait(
        "communicator",
        _MAKING if made or called is None else called.group(),
        own[-1],
        group=name_of_group(given) if given is not None and not foreign else "",
        exact=False,
        outside=foreign,
    )


def _has_communicator(frame: Frame) -> bool:
    return _OBJECT.search((frame.locals or {}).get("self", "")) is not None


def _is_of_torch(frame: Frame) -> bool:
    """True if the group that a frame was given is one of torch's, or the default one."""
    return (frame.locals or {})["group"].partition("=")[0] in {"ProcessGroup", "None"}
