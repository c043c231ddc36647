"""Realistic values for tests of what is shown and stored: two ranks hung in the evaluation of a Hugging Face Trainer.

Rank 0's labels are a tuple of two tensors, rank 1's of one (an extra ``label_names`` entry is None there), so rank 0 is
in an all_gather that rank 1 never joins: it has gone on to the next step's broadcast of buffers.
"""

from __future__ import annotations

import msgspec

from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation
from hangwatch.model.incident import (
    Cause,
    Collective,
    Divergence,
    Evidence,
    Incident,
    JobEntry,
    RankEntry,
    RankGroup,
    SourceLine,
    Verdict,
)
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack

AT_NS = 1_780_000_000_000_000_000
SITE = "/opt/train/venv/lib/python3.11/site-packages"
USER = "/home/ada/finetune/train.py"
DEFAULT_GROUP = Group("0", (0, 1), "default_pg")

_OUTER = (
    Frame("<module>", USER, 96, "main()"),
    Frame("main", USER, 88, "trainer.evaluate()"),
    Frame("evaluate", f"{SITE}/transformers/trainer.py", 2911),
    Frame("evaluation_loop", f"{SITE}/transformers/trainer.py", 3102, "labels = self.gather_function((labels))"),
)
_INNER = {
    0: (
        Frame("gather_for_metrics", f"{SITE}/accelerate/accelerator.py", 3056, locals={"input_data": "tuple[2]"}),
        Frame("_gpu_gather_one", f"{SITE}/accelerate/utils/operations.py", 349),
        Frame(
            "all_gather", f"{SITE}/torch/distributed/distributed_c10d.py", 4101, "work.wait()", {"async_op": "bool=0"}
        ),
    ),
    1: (
        Frame("prediction_step", f"{SITE}/transformers/trainer.py", 3220, "outputs = model(**inputs)"),
        Frame("_sync_buffers", f"{SITE}/torch/nn/parallel/distributed.py", 2207),
    ),
}


def stack(rank: int) -> tuple[Frame, ...]:
    """The main thread of a rank, deepest first."""
    return tuple(reversed((*_OUTER, *_INNER[rank])))


def rank_capture(rank: int) -> RankCapture:
    """One rank of the hang with everything seen."""
    operation = Operation(
        record_id=41,
        group=DEFAULT_GROUP,
        seq=12,
        op=("all_gather", "broadcast")[rank],
        completed=False,
        created_ns=AT_NS - 2_400_000_000,
        backend="gloo",
        input_sizes=((2, 16),),
        output_sizes=((4, 16),),
        input_dtypes=("Long",),
        output_dtypes=("Long",),
        frames=stack(rank),
    )
    progress = (GroupProgress(DEFAULT_GROUP, enqueued=12, started=-1, completed=11),)
    thread = ThreadStack(4100 + rank, "MainThread", True, False, False, stack(rank))
    pool = ThreadStack(4200 + rank, None, False, False, False, ())
    worker = ChildProcess(pid=4300 + rank, name="pt_data_worker", state="S", cpu_s=1.5, wait_channel="pipe_read")
    return RankCapture(
        identity=RankIdentity(rank=rank, pid=4100 + rank, start_time=1_779_999_000.25, node="gpu-17", local_rank=rank),
        processes=tuple(
            ProcessSample(at_ns=AT_NS + k, pid=4100 + rank, state="S", cpu_s=21.5, children=(worker,)) for k in (0, 1)
        ),
        stacks=(StackSample(AT_NS, (thread, pool)), StackSample(AT_NS + 1, (thread,))),
        flight=FlightRecord(AT_NS, "pickle", "2.10", (operation,), progress),
        progress=progress,
        beat_age_s=0.25,
        log_error=("UserWarning: labels of rank 1 are short",),
    )


def hang_capture() -> Capture:
    """Both ranks, and one gap."""
    job = Job("torchrun-7c1f", 2, ("gpu-17",), "torchrun", "torchrun --nproc-per-node 2 train.py")
    gap = Gap("gpu", "no NVIDIA device on this node", hint="nothing to do on a CPU machine")
    return Capture(job, AT_NS, (rank_capture(0), rank_capture(1)), (gap,))


def hang_incident(ended_at: str | None = None) -> Incident:
    """The document of the same hang."""
    cause = Cause(
        id="tuple-labels-gather",
        title="Evaluation gathers labels whose structure differs between ranks",
        confidence=0.93,
        explanation=(
            "On rank 0 the labels of a batch are a tuple of 2 tensors, on rank 1 of 1. accelerate gathers a tuple "
            "tensor by tensor, so rank 0 calls one all_gather more than rank 1 and waits for it for ever."
        ),
        evidence=(
            Evidence(0, "stack", "in Trainer.evaluation_loop > gather_for_metrics, labels: tuple[Tensor, Tensor]"),
            Evidence(1, "stack", "already in the next step, under DistributedDataParallel._sync_buffers"),
            Evidence(
                None, "flight recorder", "at sequence number 12 of default_pg rank 0 has all_gather, rank 1 broadcast"
            ),
        ),
        remedy=(
            "Keep labels one tensor of the same structure on every rank.",
            'Drop "metadata" from label_names and carry it in the batch or the model instead.',
            "To see the shapes that differ, run once with ACCELERATE_DEBUG_MODE=1.",
        ),
        references=("docs/causes/tuple-labels-gather.md",),
    )
    runner_up = Cause("collective-mismatch", "Ranks call different operations", 0.05, "")
    ranks = tuple(
        RankEntry(
            rank=rank,
            node="gpu-17",
            pid=4100 + rank,
            state="waiting",
            groups=(RankGroup("default_pg", 12, 11),),
            stack=tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in stack(rank)),
        )
        for rank in (0, 1)
    )
    return Incident(
        id="20260528-202637-7c1f",
        job=JobEntry(
            "torchrun-7c1f",
            ("gpu-17",),
            2,
            "torchrun",
            "torchrun --nproc-per-node 2 train.py",
            name="llama-sft",
            script="src/train.py",
            user="ada",
            slurm_job="4711",
        ),
        onset_at="2026-05-28T20:26:37.600Z",
        detected_at="2026-05-28T20:26:39.100Z",
        confirmed_at="2026-05-28T20:26:40.000Z",
        ended_at=ended_at,
        verdict=Verdict(
            kind="deadlock",
            proven=True,
            severity="critical",
            summary="Rank 0 gathers labels in an all_gather that rank 1 never joins: rank 1 is in a broadcast of the next step.",
            collective=Collective("all_gather", "default_pg", (0, 1), 12, ((2, 16),), ("Long",)),
            culprit_ranks=(0,),
            waiting_ranks=(0, 1),
            divergence=Divergence(
                culprit=SourceLine(
                    USER, 88, "main", "trainer.evaluate()", "gather_for_metrics (accelerate/accelerator.py:3056)"
                ),
                others=SourceLine(
                    USER, 88, "main", "trainer.evaluate()", "_sync_buffers (torch/nn/parallel/distributed.py:2207)"
                ),
                group="default_pg",
                seq=12,
                culprit_op="all_gather",
                others_op="broadcast",
            ),
            cause=cause,
            alternatives=(runner_up,),
            proof="Each rank waits for the other to join its own operation at sequence number 12, and neither can leave it.",
            waits=(
                "rank 0 waits in all_gather 12 of default_pg for rank 1, which has broadcast there",
                "rank 1 waits in broadcast 12 of default_pg for rank 0, which has all_gather there",
            ),
        ),
        ranks=ranks,
        captured={"flight_recorder": True, "stacks": True, "processes": True, "gpu": False},
        missing=("gpu: no NVIDIA device on this node (nothing to do on a CPU machine)",),
    )


def with_text(text: str) -> tuple[Incident, Capture]:
    """The example with ``text`` wherever text comes from the job, its code, its machine or a rule's words."""
    kept = {"kind", "severity", "culprits_from", "onset_at", "detected_at", "confirmed_at", "ended_at", "schema", "id"}

    def replaced(value: object, name: str = "") -> object:
        if isinstance(value, str):
            return value if name in kept or not value else text
        if isinstance(value, dict):
            return {key: replaced(item, key) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [replaced(item, name) for item in value]
        return value

    incident = msgspec.convert(replaced(msgspec.to_builtins(hang_incident())), Incident)
    capture = msgspec.convert(replaced(msgspec.to_builtins(hang_capture())), Capture)
    return incident, capture
