"""What a thread waits for, read from its stack. Pure: frames in, a ``Wait`` or None out.

Function names are those of torch 2.4 to 2.13 (``torch/distributed/distributed_c10d.py``, ``rendezvous.py``,
``nn/parallel/distributed.py``, ``autograd/graph.py``, ``distributed/_functional_collectives.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile
from typing import Literal

from hangwatch.analysis.places import bare
from hangwatch.model.collectives import DEFAULT_GROUP
from hangwatch.model.stacks import Frame, once_a_stack
from hangwatch.program.lines import header_of

WaitKind = Literal[
    "collective",
    "point_to_point",
    "group_creation",
    "initialization",
    "store",
    "backward",
    "work",
    "device",
    "communicator",
]


@dataclass(frozen=True)
class Wait:
    """A wait for other ranks (``device``: for the accelerator, behind which other ranks may be).

    ``op``: the collective's name as the flight recorder spells it. ``peers``: the global ranks that a point-to-point
    operation waits for, or the members of the group that is being created. ``group``: the name of that group, or of the
    group of a send or receive; empty if the stack does not tell. ``default_group``: None if the stack does not tell.
    ``world_size``: how many ranks the initialization waits for. ``exact``: it is known that these peers are awaited, or
    every rank if there are none. ``stage``: the other side of a pipeline's wait, counted from the own stage (1: the
    next). ``place``: the other side by its rank within a group that the stack does not name. ``tag``: of a send or
    receive, which meets none of another tag. ``outside``: it is, or may be, for processes that are no ranks of this
    job. ``port``: at which the ranks meet, if the stack tells. ``connecting``: it has not reached the store there yet,
    or is still making it.
    """

    kind: WaitKind
    op: str
    frame: Frame
    peers: tuple[int, ...] = ()
    default_group: bool | None = None
    group: str = ""
    world_size: int | None = None
    exact: bool = True
    stage: int | None = None
    place: int | None = None
    tag: int | None = None
    outside: bool = False
    port: int | None = None
    connecting: bool = False

    @property
    def awaits_work(self) -> bool | None:
        """True if the call has returned and its work is waited for; None if the line is not known.

        On Gloo each call returns at once (torch 2.13). NCCL connects in the call.
        """
        return ".wait(" in self.frame.source if self.frame.source is not None else None


#: Public functions of distributed_c10d that wait for other ranks -> the operation they come down to.
COLLECTIVES = {
    "all_reduce": "all_reduce", "all_reduce_coalesced": "all_reduce", "reduce": "reduce", "broadcast": "broadcast",
    "all_gather": "all_gather", "all_gather_into_tensor": "all_gather", "_all_gather_base": "all_gather",
    "all_gather_coalesced": "all_gather", "gather": "gather", "scatter": "scatter",
    "all_gather_single": "all_gather", "reduce_scatter_single": "reduce_scatter",
    "gather_single": "gather", "gather_into_tensor": "gather",
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
_CONNECT = re.compile(r"\bTCPStore\(")
_DESTROY = re.compile(r"\bdestroy_process_group\(")
_WORK = re.compile(r"\.wait\(|\bwait_tensor\(|\.result\(")
#: What is asked of a tensor that may be on a device, by words: a weak sign.
ASKS_DEVICE = re.compile(r"\.(?:item|cpu|tolist|numpy|synchronize|nonzero)\(|\.to\(|\bprint\(")

_C10D = "torch/distributed/"
#: What an operator goes through on its way into C++: above ``wait_tensor`` of functional collectives (DTensor, FSDP2).
_DISPATCH = ("torch/_ops.py", "torch/_library/", "torch/_higher_order_ops/")
#: Where DeepSpeed (0.19) awaits what it has begun: ``AllGatherHandle.wait`` and the like, by way of a wrapper for NVTX.
_DEEPSPEED, _NVTX = ("deepspeed/runtime/zero/", "deepspeed/runtime/comm/", "deepspeed/comm/"), "deepspeed/utils/nvtx.py"
#: Where Lightning (2.6) calls the ``monitored_barrier`` of a Gloo group of all ranks, which is C++ and has no frame of its own.
_LIGHTNING = "fabric/utilities/distributed.py"
#: Where workers of Ray Train (2.60, V2) wait for all others, by an actor: ``report``, ``barrier``, ``broadcast_from_rank_zero``.
_RAY_TRAIN = "ray/train/v2/_internal/execution/"
_RAY_BARRIERS = frozenset({"_sync_checkpoint_dir_name_across_ranks", "barrier", "broadcast_from_rank_zero"})
_WRAPPERS = {"wrapper", "_exception_logger", "_time_logger", "func_wrapper", "inner", "_fn", "decorate_context"}


def in_torch_distributed(frame: Frame) -> bool:
    """True if the frame is code of torch.distributed or of DDP's Python half."""
    return _C10D in frame.file or frame.file.endswith("torch/nn/parallel/distributed.py")


def _integer(frame: Frame, name: str) -> int | None:
    described = (frame.locals or {}).get(name, "")
    found = re.fullmatch(r"int=(-?\d+)", described)
    return int(found.group(1)) if found else None


def _default_group(frame: Frame) -> bool | None:
    # From torch 2.13 on the function itself puts the default group in place of None. An object without a name tells nothing.
    name = name_of_group(frame)
    return name == DEFAULT_GROUP if name else None


def name_of_group(frame: Frame) -> str:
    """Return the name of the group that a call was given; empty if the stack does not tell."""
    given = (frame.locals or {}).get("group", "")
    kind, _, name = given.partition("=")
    return DEFAULT_GROUP if given == "None" else name if kind == "ProcessGroup" else ""


def _point_to_point(frames: Sequence[Frame]) -> Wait:
    """Return the wait of a send or receive. Its frame comes first, then its callers in torch.distributed."""
    frame = frames[0]
    op, end = ("send", "dst") if "send" in frame.function else ("recv", "src")
    default = _default_group(frame)
    # An object is sent to a rank within its group; a caller may know the global rank.
    peer = next((peer for f in frames if (peer := _integer(f, end)) is not None), None)
    place = _integer(frame, f"group_{end}")
    if peer is None and default:
        peer = place
    peers = (peer,) if peer is not None else ()
    place = place if peer is None else None
    return Wait(
        "point_to_point", op, frame, peers, default, name_of_group(frame), place=place, tag=_integer(frame, "tag")
    )


def _created(frame: Frame) -> tuple[tuple[int, ...], str]:
    """Return the members and the name of the group that a frame is creating."""
    described = frame.locals or {}
    listed = described.get("global_ranks_in_group") or described.get("ranks") or ""
    ranks = re.fullmatch(r"list\[int\]=\[(\d+(?:,\d+)*)\]", listed)
    name = described.get("group_name", "")
    members = tuple(int(r) for r in ranks.group(1).split(",")) if ranks is not None else ()
    return members, name.removeprefix("str=") if name.startswith("str=") else ""


def _takes_everyone(frame: Frame, members: Sequence[int]) -> bool:
    """True if this frame of a group's creation waits for every rank, and not only for the members."""
    name, described = bare(frame), frame.locals or {}
    if name == "_store_based_barrier":  # only with TORCH_DIST_INIT_BARRIER=1
        return _integer(frame, "rendezvous_count") != len(members)
    if name == "_new_group_with_tag":
        size = _integer(frame, "group_world_size")
        return size is not None and size == _integer(frame, "global_world_size")
    split = described.get("split_from", "None") != "None"  # a split takes all members of the group that is split
    return split or (name == "new_group" and described.get("ranks") == "None")


def _creation(frames: Sequence[Frame]) -> Wait | None:
    """Return the creation of a group, if these frames of torch.distributed (deepest first) are in one; else None.

    A creation waits for the members if they connect among themselves. The innermost frame that tells says which group
    it is; if the list of members is too long to be seen, it is not known who is awaited.
    """
    made = [f for f in frames if bare(f) in _CREATION]
    if not made:
        return None
    groups = [_created(f) for f in made]
    members = next((members for members, _ in groups if members), ())
    name = next((name for _, name in groups if name), "")
    if any(f.function == "split_group" for f in made):
        return Wait(
            "group_creation", "new_group", made[-1], group=name, exact=False
        )  # it takes all members of the parent, which is not known
    listed = [(f.locals or {}).get("global_ranks_in_group", "") for f in made]
    itself = all(bare(f) == "_new_process_group_helper" for f in made)
    if itself and not any(one.startswith("list[int") for one in listed):
        # The program calls torch's helper itself, with members that need not be ranks of this world. It looks the same if the
        # list could not be read, as happens at the moment in which the creation goes on.
        return Wait("group_creation", "new_group", made[-1], group=name, exact=False, outside=True)
    everyone = any(_takes_everyone(f, members) for f in frames)
    return Wait(
        "group_creation",
        "new_group",
        made[-1],
        () if everyone else members,
        group=name,
        exact=everyone or bool(members),
    )


#: An exchange of a schedule with one stage a rank, as it names it -> the operation, and the stage of the neighbour.
_EXCHANGES = {
    "fwd_recv": ("recv", -1), "bwd_send": ("send", -1), "bwd_send_fwd_recv": ("exchange", -1),
    "bwd_recv": ("recv", 1), "fwd_send": ("send", 1), "fwd_send_bwd_recv": ("exchange", 1),
}  # fmt: skip
_DESCRIBED = re.compile(r"\bdesc=\"(\w+)\"")
#: GPipe waits in four loops, which differ by what is around them.
_GPIPE = {
    "fwd_send": "fwd_sends_to_wait", "bwd_send": "bwd_sends_to_wait", "fwd_recv": "Forward", "bwd_recv": "Backward"
}  # fmt: skip


def _pipelined(frames: Sequence[Frame]) -> Wait | None:
    """Return the wait for a neighbouring stage in a schedule of torch.distributed.pipelining; None if in none.

    The schedules are ``ScheduleGPipe`` and ``Schedule1F1B``.
    """
    pairs = ((f, caller) for f, caller in pairwise(frames) if f.function == "_wait_batch_p2p")
    frame, caller = next(pairs, (None, None))
    if frame is None or caller is None or "torch/distributed/pipelining/" not in caller.file:
        return None
    line, kind = caller.source or "", (caller.locals or {}).get("self")
    described = _DESCRIBED.search(line)
    what = described.group(1) if described is not None else ""
    if kind == "Schedule1F1B" and not what and "send_work" in line:
        first_backward = "bwd_recvs" in (caller.locals or {})  # the first backward comes after the warm-up
        what = "bwd_send" if first_backward else "fwd_send"
    elif kind == "ScheduleGPipe" and not what:
        names = {name for b in caller.blocks for name in header_of(b).names}
        what = next((what for what, name in _GPIPE.items() if name in names), "")
    if kind not in {"ScheduleGPipe", "Schedule1F1B"} or what not in _EXCHANGES:
        return None
    op, stage = _EXCHANGES[what]
    return Wait("point_to_point", op, frame, stage=stage)


def _world_size(frames: Sequence[Frame]) -> int | None:
    """Return how many ranks were announced to ``init_process_group`` or a function that it calls; None if not known.

    The argument of ``init_process_group`` itself may still be -1.
    """
    names = ("group_size", "world_size")
    found = (_integer(f, name) for f in frames if in_torch_distributed(f) for name in names)
    return next((size for size in found if size is not None and size > 0), None)


def _initialization(frame: Frame, top: Sequence[Frame]) -> Wait:
    """Return the wait of a rank in ``init_process_group``, which is ``frame`` or has called it.

    ``_create_c10d_store`` (``rendezvous.py``, torch 2.4 to 2.13) makes a ``TCPStore``. The constructor of a client
    returns as soon as it is connected; that of rank 0, if it hosts the store, waits for all others. Under torchrun,
    which hosts the store, there is no ``start_daemon``.
    """
    store = next((f for f in top[:1] if bare(f) == "_create_c10d_store"), None)
    hosts = store is not None and (store.locals or {}).get("start_daemon") == "bool=True"
    connecting = store is not None and bool(store.locals) and "TCPStore(" in (store.source or "") and not hosts
    port = _integer(store, "port") if store is not None else None
    return Wait(
        "initialization", "init_process_group", frame, world_size=_world_size(top), port=port, connecting=connecting
    )


def _wait_of_torch(frames: Sequence[Frame]) -> Wait | None:
    """Return the outermost wait among the torch.distributed frames at the top: ``new_group`` over the store it waits on."""
    inside = list(takewhile(in_torch_distributed, frames))
    found = _creation(inside) or _pipelined(inside)
    for index, frame in enumerate(inside):
        name = bare(frame)
        if name in {"init_process_group", "rendezvous", "_env_rendezvous_handler", "_create_c10d_store"}:
            return _initialization(frame, frames)
        if found is not None and found.kind == "group_creation":
            continue
        if name in _POINT_TO_POINT:
            found = _point_to_point(inside[index:])
        elif name in COLLECTIVES and found is None:
            found = Wait("collective", COLLECTIVES[name], frame, default_group=_default_group(frame))
        elif name == "_store_based_barrier" and found is None:
            found = Wait("store", "store", frame)
        elif name in {"wait_tensor", "wait"} and found is None:
            found = Wait("work", "wait", frame)
        elif name == "destroy_process_group" and found is None:
            found = Wait("collective", "destroy_process_group", frame)
    return found


@once_a_stack
def read_destructor(frames: Sequence[Frame]) -> Wait | None:
    """Return the wait of a thread at ``destroy_process_group``, which has returned; None if it is not there.

    A group awaits what is in flight when its last reference goes. It is a wait only of a rank that is known to have
    something in flight.
    """
    first = frames[0] if frames else None
    return Wait("work", "destroy_process_group", first) if first and _DESTROY.search(first.source or "") else None


@once_a_stack
def read_connection(frames: Sequence[Frame]) -> Wait | None:
    """Return the wait of a thread that makes a store: for its host, or if it hosts it, for all others; else None.

    Only for a rank that already has its world is this known to be another store.
    """
    first = frames[0] if frames else None
    return (
        Wait("store", "store", first, outside=True, connecting=True)
        if first and _CONNECT.search(first.source or "")
        else None
    )


@once_a_stack
def read_wait(frames: Sequence[Frame]) -> Wait | None:
    """Return what the thread with these frames (deepest first) waits for among other ranks; None if for none of them."""
    top = [f for f in frames if bare(f) not in _WRAPPERS or not in_torch_distributed(f)]
    if not top:
        return None
    wait = _wait_of_torch(list(dropwhile(lambda f: any(part in f.file for part in _DISPATCH), top)))
    if wait is not None:
        # Group creation and initialisation may hold other frames (contextlib, device mesh) above the torch ones.
        outer = next((f for f in top if bare(f) == "init_process_group"), None)
        if outer is None:
            return wait
        return _initialization(outer, top)
    first = top[0]
    if first.function.endswith("_engine_run_backward") or (
        first.function.endswith("backward") and "torch/autograd" in first.file
    ):
        return Wait("backward", "backward", first)
    if bare(first) == "synchronize" and "torch/" in first.file:
        return Wait("device", "synchronize", first)
    handle = next(dropwhile(lambda f: _NVTX in f.file, top), first)
    if bare(handle) == "wait" and any(part in handle.file for part in _DEEPSPEED):
        return Wait("work", "wait", handle)
    line = first.source or ""
    if first.file.endswith(_LIGHTNING) and line == "self.barrier()":
        # It is among all ranks, though not in the default group.
        return Wait("collective", "monitored_barrier", first, default_group=True)
    workers = next((f for f in top if _RAY_TRAIN in f.file and bare(f) in _RAY_BARRIERS), None)
    if workers is not None:
        # Its workers are the ranks of the default group, unless the program has made another one.
        return Wait("collective", "barrier of Ray Train", workers, default_group=True, exact=False)
    if _STORE.search(line):
        return Wait("store", "store", first)
    work = any("Work" in described for described in (first.locals or {}).values())
    if _WORK.search(line) and work:
        return Wait("work", "wait", first)
    if ASKS_DEVICE.search(line) and "Tensor" in " ".join((first.locals or {}).values()):
        return Wait("device", "copy", first)
    return None
