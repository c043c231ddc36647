"""A job for ``slow_jobs.py``: ``slowed.py SHAPE FOLDER SEED``. Its ranks take steps of fixed work until a phase says ``stop``.

FOLDER has ``phases``, a JSON list of who is slow from which step on, and ``step``, what rank 0 has come to. Ranks stand for
accelerators: nearly all of their work is sleep, so that two cores carry eight of them.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

STEP_S, LAYERS, WIDTH = 0.15, 4, 16
#: Of a step, in which part of it the time goes: 0.3 forward, 0.6 backward, 0.1 input.
FORWARD_S, BACKWARD_S, INPUT_S = STEP_S * 0.3 / LAYERS, STEP_S * 0.6 / LAYERS, STEP_S * 0.1
ON_CORE = 0.03
_held = threading.Lock()


class Job:
    """What this rank does in the current step."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.step, self.phase = folder, 0, {"kind": "even"}
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.varies = random.Random(f"{seed} {self.rank}")  # noqa: S311
        self.factor, self.extra_s, self.step_s = 1.0, 0.0, STEP_S
        self.begins: deque[float] = deque(maxlen=30)
        self._at = os.open(folder / "step", os.O_CREAT | os.O_WRONLY)

    def begin(self) -> bool:
        """Begin a step; False after the last one."""
        self.step += 1
        if self.step == 5:
            gc.freeze()  # so that a collection takes what the phase says
        if self.rank == 0:
            os.pwrite(self._at, b"%10d" % self.step, 0)
        before, phases = self.phase, json.loads((self.folder / "phases").read_text())
        self.phase = [one for one in phases if one["from"] <= self.step][-1]
        self.begins.append(time.perf_counter())
        if before != self.phase and len(self.begins) > 1:  # a step may take longer than it should, on a busy machine
            self.step_s = median(then - now for now, then in pairwise(self.begins))
        kind, slow = self.phase["kind"], self.phase.get("ranks", [])
        self.factor = self.varies.lognormvariate(0, 0.3) if kind == "uneven lengths" else 1.0
        if kind == "turns" and self.step % self.size == self.rank:
            self.factor = 1.3
        if kind == "long turns" and self.step // 20 % self.size == self.rank:
            self.factor = 1.3
        self.extra_s = self.phase.get("share", 0.0) * self.step_s if self.rank in slow else 0.0
        if kind == "evaluation" and self.rank == 0 and self.step % 10 == 0:
            time.sleep(4 * STEP_S)
        return kind != "stop"

    def work(self, seconds: float, where: str) -> None:
        """Take so long, and longer here if this phase says so; a part of the time on the core."""
        seconds *= self.factor * self.varies.lognormvariate(0, 0.03)
        if self.extra_s and self.phase["kind"] in REASONS and REASONS[self.phase["kind"]][0] == where:
            REASONS[self.phase["kind"]][1](self.extra_s / (1 if where == "input" else LAYERS))
        compute(seconds * ON_CORE)
        time.sleep(seconds * (1 - ON_CORE))


def compute(seconds: float) -> None:
    """Use the core for so long."""
    ends = time.thread_time() + seconds
    matrix = torch.ones(64, 64)
    while time.thread_time() < ends:
        matrix @ matrix


def sleep(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def collect(seconds: float) -> None:
    """Collect garbage."""
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        gc.collect()


def hold(seconds: float, taken: threading.Event) -> None:
    """Hold the lock."""
    with _held:
        taken.set()
        time.sleep(seconds)


def lock(seconds: float) -> None:
    """Wait for a lock that another thread holds."""
    taken = threading.Event()
    threading.Thread(target=hold, args=(seconds, taken)).start()
    taken.wait()
    with _held:
        pass


def sync(seconds: float) -> None:
    """Write to the disk."""
    ends = time.perf_counter() + seconds
    with (Path.cwd() / f"written-{os.getpid()}").open("wb") as file:
        while time.perf_counter() < ends:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())


def read(seconds: float) -> None:
    """Read from another process, which takes its time."""
    with subprocess.Popen(["sleep", str(seconds)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()


#: Where in the step, and what.
REASONS = {
    "compute": ("forward", compute),
    "backward": ("backward", compute),
    "sleep": ("forward", sleep),
    "gc": ("forward", collect),
    "lock": ("input", lock),
    "fsync": ("input", sync),
    "pipe": ("input", read),
    "loader": ("loader", sleep),
}


class Backward(torch.autograd.Function):
    """Takes its time in the backward."""

    @staticmethod
    def forward(ctx, x, job):
        ctx.job = job
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.job.work(BACKWARD_S, "backward")
        return grad, None


class Layer(nn.Module):
    """A layer that takes its time."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job, self.up, self.down = job, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        self.job.work(FORWARD_S, "forward")
        return Backward.apply(x + self.down(torch.relu(self.up(x))), self.job)


class Samples(Dataset):
    """Samples that are loaded by the training itself."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index):
        if self.job.extra_s and self.job.phase["kind"] == "loader":
            time.sleep(self.job.extra_s)
        x = torch.full((WIDTH,), float(index % 7))
        return {"x": x, "labels": x}


class Model(nn.Module):
    """Some layers, and the loss of a Trainer's model if it gets labels."""

    def __init__(self, job: Job, layers: int = LAYERS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(job) for _ in range(layers))
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, labels=None):
        for layer in self.layers:
            x = layer(x)
        x = self.head(x)
        return x if labels is None else {"loss": (x - labels).square().mean(), "logits": x}


def loop(job: Job, model: nn.Module, reduce=lambda: None) -> None:
    """Train."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for batch in DataLoader(Samples(job), batch_size=1):
        if not job.begin():
            break
        job.work(INPUT_S, "input")
        kind = job.phase["kind"]
        accumulates = kind == "accumulation" and job.step % 4 and hasattr(model, "no_sync")
        with model.no_sync() if accumulates else nullcontext():
            model(batch["x"]).square().mean().backward()
        if accumulates:
            continue
        reduce()
        optimizer.step()
        optimizer.zero_grad()
        if kind == "checkpoints" and job.step % 20 == 0:
            if job.rank == 0:
                time.sleep(8 * STEP_S)
            dist.barrier()


def ddp(job: Job) -> None:
    """Buckets of about a layer."""
    loop(job, DistributedDataParallel(Model(job), bucket_cap_mb=0.002))


def fsdp(job: Job) -> None:
    """FSDP2, layer by layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = Model(job), init_device_mesh("cpu", (job.size,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loop(job, model)


def tp(job: Job) -> None:
    """Pairs of tensor parallel ranks (DTensor) within data parallel ones."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (job.size // 2, 2), mesh_dim_names=("dp", "tp"))
    model, group = Model(job), mesh["dp"].get_group()
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def reduce() -> None:
        grads = [parameter.grad for parameter in model.parameters()]
        local = [grad.to_local() if hasattr(grad, "to_local") else grad for grad in grads]
        dist.all_reduce(torch.cat([grad.flatten() for grad in local]), group=group)

    loop(job, model, reduce)


def pipeline(job: Job) -> None:
    """Two stages, within data parallel replicas of them."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    mesh = init_device_mesh("cpu", (job.size // 2, 2), mesh_dim_names=("dp", "pp"))
    number, group = mesh["pp"].get_local_rank(), mesh["dp"].get_group()
    model = Model(job, LAYERS // 4 if number == 0 else LAYERS // 2)  # the last stage has more to do, by design
    stage = PipelineStage(model, number, 2, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda x, _: x.square().mean())
    x = torch.ones(4, WIDTH)
    while job.begin():
        job.work(INPUT_S, "input")
        schedule.step(*((x,) if number == 0 else ()), **({"target": x} if number == 1 else {}))
        flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        dist.all_reduce(flat, group=group)


def trainer(job: Job) -> None:
    """A Hugging Face Trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Begins(TrainerCallback):
        def on_step_begin(self, _args, _state, control, **_rest):
            control.should_training_stop = not job.begin()
            job.work(INPUT_S, "input")

        def on_step_end(self, _args, _state, control, **_rest):
            control.should_save = job.phase["kind"] == "checkpoints" and job.step % 20 == 0
            control.should_training_stop = job.phase["kind"] == "stop"

    arguments = TrainingArguments(
        output_dir=str(job.folder / "output"), use_cpu=True, max_steps=10**6, per_device_train_batch_size=1,
        logging_steps=10, save_strategy="no", report_to=[], disable_tqdm=True, save_total_limit=1,
    )  # fmt: skip
    Trainer(Model(job), arguments, train_dataset=Samples(job), callbacks=[Begins()]).train()


if __name__ == "__main__":
    shape, folder, seed = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    if shape != "trainer":
        dist.init_process_group("gloo")
    globals()[shape](Job(Path(folder), int(seed)))
    if dist.is_initialized():
        dist.destroy_process_group()
