"""What a thread waits for, read from its stack. Pure: frames in, a ``Wait`` or None out.

Function names are those of torch 2.4 to 2.13 (``torch/distributed/distributed_c10d.py``, ``rendezvous.py``,
``nn/parallel/distributed.py``, ``autograd/graph.py``, ``distributed/_functional_collectives.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Literal

from hangwatch.model.stacks import Frame

WaitKind = Literal[
    "collective", "point_to_point", "group_creation", "initialization", "store", "backward", "work", "device"
]


@dataclass(frozen=True)
class Wait:
    """A wait for other ranks (``device``: for the accelerator, behind which other ranks may be).

    ``op`` is the collective's name as the flight recorder spells it; ``peers`` the global ranks a point-to-point
    operation waits for; ``default_group`` is None where the stack does not tell.
    """

    kind: WaitKind
    op: str
    frame: Frame
    peers: tuple[int, ...] = ()
    default_group: bool | None = None


#: Public functions of distributed_c10d that wait for other ranks -> the operation they come down to.
COLLECTIVES = {
    "all_reduce": "all_reduce", "all_reduce_coalesced": "all_reduce", "reduce": "reduce", "broadcast": "broadcast",
    "all_gather": "all_gather", "all_gather_into_tensor": "all_gather", "_all_gather_base": "all_gather",
    "all_gather_coalesced": "all_gather", "gather": "gather", "scatter": "scatter",
    "all_gather_single": "all_gather", "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter", "all_to_all": "all_to_all", "all_to_all_single": "all_to_all",
    "barrier": "barrier", "monitored_barrier": "monitored_barrier",
    "all_gather_object": "all_gather", "gather_object": "gather", "broadcast_object_list": "broadcast",
    "scatter_object_list": "scatter", "send_object_list": "send", "recv_object_list": "recv",
    "_verify_params_across_processes": "all_gather", "_broadcast_coalesced": "broadcast",
    "_distributed_broadcast_coalesced": "broadcast", "_sync_module_states": "broadcast",
    "_sync_params_and_buffers": "broadcast", "_verify_param_shape_across_processes": "all_gather",
}  # fmt: skip
_POINT_TO_POINT = {"send", "recv", "isend", "irecv", "batch_isend_irecv"}
_CREATION = {"new_group", "_new_group_with_tag", "_new_process_group_helper", "split_group", "new_subgroups"}
_STORE = re.compile(r"\bstore\w*\.(?:get|wait|multi_get|check|barrier)\s*\(|\b_?barrier\(.*store")
_WORK = re.compile(r"\.wait\(|\bwait_tensor\(|\.result\(")
_DEVICE = re.compile(r"\.(?:item|cpu|tolist|numpy|synchronize|nonzero)\(|\.to\(|\bprint\(")

_C10D = "torch/distributed/"
#: What an operator goes through on its way into C++: above ``wait_tensor`` of functional collectives (DTensor, FSDP2).
_DISPATCH = ("torch/_ops.py", "torch/_library/", "torch/_higher_order_ops/")
_WRAPPERS = {"wrapper", "_exception_logger", "_time_logger", "func_wrapper", "inner", "_fn", "decorate_context"}


def in_torch_distributed(frame: Frame) -> bool:
    """Whether the frame is code of torch.distributed or of DDP's Python half."""
    return _C10D in frame.file or frame.file.endswith("torch/nn/parallel/distributed.py")


def _integer(frame: Frame, name: str) -> int | None:
    told = (frame.locals or {}).get(name, "")
    found = re.fullmatch(r"int=(-?\d+)", told)
    return int(found.group(1)) if found else None


def _default_group(frame: Frame) -> bool | None:
    # An object tells nothing: from torch 2.13 on the function itself puts the default group in place of None.
    return True if (frame.locals or {}).get("group") == "None" else None


def _peers(frame: Frame) -> tuple[int, ...]:
    names = ("dst", "group_dst") if "send" in frame.function else ("src", "group_src")
    for name in names:
        peer = _integer(frame, name)
        if peer is not None:
            return (peer,)
    return ()


def _wait_of_torch(frames: Sequence[Frame]) -> Wait | None:
    """The outermost wait among the torch.distributed frames at the top: ``new_group`` over the store it waits on."""
    found: Wait | None = None
    for frame in frames:
        if not in_torch_distributed(frame):
            break
        name = frame.function.rpartition(".")[2]
        if name in {"init_process_group", "rendezvous", "_env_rendezvous_handler", "_create_c10d_store"}:
            return Wait("initialization", "init_process_group", frame)
        if name in _CREATION:
            found = Wait("group_creation", "new_group", frame)
        elif found is not None and found.kind == "group_creation":
            continue
        elif name in _POINT_TO_POINT:
            op = "send" if "send" in name else "recv"
            found = Wait("point_to_point", op, frame, _peers(frame), _default_group(frame))
        elif name in COLLECTIVES and found is None:
            found = Wait("collective", COLLECTIVES[name], frame, default_group=_default_group(frame))
        elif name == "_store_based_barrier" and found is None:
            found = Wait("store", "store", frame)
        elif name in {"wait_tensor", "wait"} and found is None:
            found = Wait("work", "wait", frame)
        elif name == "destroy_process_group" and found is None:
            found = Wait("collective", "destroy_process_group", frame)
    return found


def read_wait(frames: Sequence[Frame]) -> Wait | None:
    """What the thread with these frames (deepest first) waits for among other ranks, None if for none of them."""
    top = [f for f in frames if f.function.rpartition(".")[2] not in _WRAPPERS or not in_torch_distributed(f)]
    if not top:
        return None
    told = _wait_of_torch(list(dropwhile(lambda f: any(part in f.file for part in _DISPATCH), top)))
    if told is not None:
        # Group creation and initialisation may hold other frames (contextlib, device mesh) above the torch ones.
        outer = next((f for f in top if f.function.rpartition(".")[2] == "init_process_group"), None)
        return Wait("initialization", "init_process_group", outer) if outer is not None else told
    first = top[0]
    if first.function.endswith("_engine_run_backward") or (
        first.function.endswith("backward") and "torch/autograd" in first.file
    ):
        return Wait("backward", "backward", first)
    if first.function.rpartition(".")[2] == "synchronize" and "torch/" in first.file:
        return Wait("device", "synchronize", first)
    line = first.source or ""
    if _STORE.search(line):
        return Wait("store", "store", first)
    work = any("Work" in told for told in (first.locals or {}).values())
    if _WORK.search(line) and work:
        return Wait("work", "wait", first)
    if _DEVICE.search(line) and "Tensor" in " ".join((first.locals or {}).values()):
        return Wait("device", "copy", first)
    return None
