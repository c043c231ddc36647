"""Tidal flow emulator over a reef flat: FSDP2 with sharded checkpoints in each machine's own scratch."""
import errno
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SCRATCH_BYTES = [4_000_000, 1_300_000, 4_000_000]
SAVE_EVERY = 16


class ScratchWriter(FileSystemWriter):
    """Counts what this process has put on its scratch and says so when there is no room for more."""

    def __init__(self, path, scratch):
        super().__init__(path, single_file_per_rank=True, sync_files=False)
        self.scratch = scratch

    def write_data(self, plan, planner):
        wanted = sum(planner.resolve_data(item).nbytes for item in plan.items if hasattr(planner.resolve_data(item), "nbytes"))
        self.scratch.reserve(wanted)
        return super().write_data(plan, planner)


class Scratch:
    def __init__(self, size):
        self.size, self.used = size, 0

    def reserve(self, wanted):
        if self.used + wanted > self.size:
            raise OSError(errno.ENOSPC, "no space left on scratch")
        self.used += wanted

    def prune(self):
        self.used = 0


class Checkpoints:
    def __init__(self, root, rank):
        self.root, self.rank = Path(root), rank
        self.scratch = Scratch(SCRATCH_BYTES[rank])

    def write(self, step, model, optimizer, attempts=3):
        weights, moments = get_state_dict(model, optimizer)
        state = {"weights": weights, "moments": moments}
        for attempt in range(attempts):
            try:
                dcp.save(state, storage_writer=ScratchWriter(self.root / f"step{step}", self.scratch))
                return True
            except CheckpointException as error:
                if self.rank not in error.failures:
                    print(f"[{self.rank}] step {step}: wrote its part, others report {len(error.failures)}", flush=True)
                    return False
                print(f"[{self.rank}] step {step}: {error.failures[self.rank][0]}, pruning", flush=True)
                self.scratch.prune()
                time.sleep(0.2)
        return False


class FlowEmulator(nn.Sequential):
    def __init__(self, cells=150, width=120):
        super().__init__(nn.Linear(cells, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, cells))


def shallow_water(rng, cells=150, steps=500):
    """A few hundred explicit steps of a one dimensional tide over a rough bottom."""
    depth = 1.5 + 0.3 * rng.random((8, cells))
    eta, flow = 0.1 * rng.standard_normal((8, cells)), np.zeros((8, cells))
    start = eta.copy()
    for _ in range(steps):
        flow -= 0.02 * (np.roll(eta, -1, 1) - eta)
        eta -= 0.02 * depth * (flow - np.roll(flow, 1, 1))
    return torch.from_numpy(start.astype(np.float32)), torch.from_numpy(eta.astype(np.float32))


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    rank = dist.get_rank()
    holder = [tempfile.mkdtemp(prefix="tidal-") if rank == 0 else None]
    dist.broadcast_object_list(holder)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("shard",))
    model = FlowEmulator().cuda()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    store, rng = Checkpoints(holder[0], rank), np.random.default_rng(rank)
    for step in range(1, 321):
        before, after = shallow_water(rng)
        loss = (model(before.cuda()) - after.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if step % SAVE_EVERY == 0:
            done = store.write(step, model, optimizer)
            if rank == 0:
                print(f"step {step} loss {value:.4f} checkpoint {'ok' if done else 'partial'}", flush=True)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(holder[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
