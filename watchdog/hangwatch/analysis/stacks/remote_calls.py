"""Calls to functions of other processes: who awaits the result of one, and which process runs one. Pure.

``ray.get`` and ``ray.wait`` of Ray 2.60 (``ray/_private/worker.py``; ``function_manager.py`` calls what an actor
executes), and ``torch.distributed.rpc`` of torch 2.4 to 2.13 (``rpc/api.py``; a thread of its own runs what was called,
by ``rpc/internal.py``). Neither shows which process was called: only the name of the function tells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.places import bare, calls, user_frames
from hangwatch.model.stacks import Frame, ThreadStack, once_a_stack

_RAY_GET = "ray/_private/worker.py"
_RAY_CALL = re.compile(r"\.(\w+)\.remote\(")
_RPC_ALL, _FUTURES = "torch/distributed/rpc/api.py", "torch/futures/"
#: A result that is asked for later: ``future.wait()``, ``rref.to_here()``, and what their variables hold.
_RPC_LATER = re.compile(r"\b(\w+)(?:\[[^\]]*\])?\.(?:wait|to_here)\(")
_RPC_RESULTS = frozenset({"Future", "PyRRef", "RRef"})
_NAME = re.compile(r"\w+")
#: What calls the function that another process has asked for.
_EXECUTES = ("ray/_private/function_manager.py", "torch/distributed/rpc/internal.py")


@once_a_stack
def runs_remote_call(frames: Sequence[Frame]) -> str | None:
    """Return the name of the program's function that these frames run for another process; None if they run none."""
    places = [place for place, frame in enumerate(frames) if any(part in frame.file for part in _EXECUTES)]
    own = user_frames(frames[: places[0]]) if places else ()
    return bare(own[-1]) if own else None


@once_a_stack
def names_awaited(frames: Sequence[Frame]) -> frozenset[str] | None:
    """Return the possible names of the function whose result is awaited here; None if none is.

    It is empty if the line does not tell.
    """
    own = next(iter(user_frames(frames)), None)
    if own is None:
        return None
    source = own.source or ""
    above = frames[: frames.index(own)]
    if awaits_ray(frames):
        return frozenset(_RAY_CALL.findall(source))
    if calls(above, _RPC_ALL, "rpc_sync") is not None:
        return frozenset(_NAME.findall(source))
    later = _RPC_LATER.search(source)
    kept = later is not None and not above and (own.locals or {}).get(later[1]) in _RPC_RESULTS
    return frozenset() if kept or calls(above, _FUTURES, "wait_all", "Future.wait", "wait") is not None else None


def awaits_ray(frames: Sequence[Frame]) -> bool:
    """True if these frames are in ``ray.get`` or ``ray.wait``, called by the program."""
    own = next(iter(user_frames(frames)), None)
    return own is not None and calls(frames[: frames.index(own)], _RAY_GET, "get", "get_objects", "wait") is not None


def serving_thread(threads: Sequence[ThreadStack]) -> ThreadStack | None:
    """Return the thread that runs what another process has called, while the main thread awaits the end of all calls.

    Of several in one place any will do; None if they are in different ones.
    """
    main = next((t for t in threads if t.is_main), None)
    if main is None or calls(main.frames, _RPC_ALL, "shutdown", "_wait_all_workers") is None:
        return None
    working = [t for t in threads if t is not main and runs_remote_call(t.frames) is not None]
    return working[0] if len({tuple((f.file, f.line) for f in t.frames) for t in working}) == 1 else None
