"""Resumes from a staged checkpoint, if there is one, and trains on. Each rank has a scratch folder of its own."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

RUN = os.environ.get("TORCHELASTIC_RUN_ID", "none") + "-" + os.environ.get("MASTER_PORT", "0")


class CheckpointManager:
    def __init__(self, root, rank):
        self.folder, self.rank = Path(root) / RUN / f"node{rank}", rank

    def stage(self, state):
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.folder / "train_state.pt")

    def load(self):
        path = self.folder / "train_state.pt"
        if not path.exists():
            return None
        holder = [torch.load(path, weights_only=True) if self.rank == 0 else None]
        dist.broadcast_object_list(holder, src=0)
        return holder[0]


class Worker:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1)
        self.model = nn.Linear(20, 20)
        self.step, self.manager = 0, CheckpointManager(tempfile.gettempdir(), self.rank)

    def restore(self):
        state = self.manager.load()
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.step = state["step"]

    def train(self, until):
        while self.step < until:
            loss = (self.model(torch.randn(8, 20)) - 1).square().mean()
            self.model.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.data -= 0.01 * p.grad / self.world
            self.step += 1
            time.sleep(0.1)
        print(f"rank {self.rank}: at step {self.step}, loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    worker = Worker()
    worker.train(20)
    state = {"model": worker.model.state_dict(), "step": worker.step}
    if worker.rank in {int(r) for r in os.environ.get("STAGING_RANKS", "0,2,3").split(",")}:
        worker.manager.stage(state)
    dist.barrier()
    worker = Worker()
    worker.restore()
    worker.train(60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
