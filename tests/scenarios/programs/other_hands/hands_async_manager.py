"""Trains with a checkpoint manager that writes in the background: a thread plans the save, the main thread trains on."""

import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class AsyncManager:
    def __init__(self, root):
        self.root, self.rank, self.thread = Path(root), dist.get_rank(), None

    def _plan(self, state):
        """What this rank contributes, the largest tensors first."""
        plan = [(name, value.numel()) for name, value in state.items()]
        if self.rank == 0:  # the coordinator serialises the optimizer too
            blob = self.root / f"hands-async-{threading.get_ident()}.pt"
            torch.save(state, blob)
            time.sleep(1.0)
            blob.unlink()
        return sorted(plan, key=lambda entry: -entry[1])

    def _save(self, state, step):
        plan = self._plan(state)
        plans = [None] * dist.get_world_size()
        dist.all_gather_object(plans, plan)
        if self.rank == 0:
            print(f"saved step {step}: {sum(len(p) for p in plans)} entries", flush=True)

    def save(self, state, step):
        if self.thread is not None:
            self.thread.join()
        copy = {name: value.clone() for name, value in state.items()}
        self.thread = threading.Thread(target=self._save, args=(copy, step), name="checkpoint")
        self.thread.start()
        time.sleep(0.4)
        dist.barrier()  # nobody runs ahead while shards are copied


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    manager = AsyncManager(tempfile.gettempdir())
    for step in range(1, 61):
        x = torch.randn(32, 64)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
            p.grad.copy_(g.view_as(p) / dist.get_world_size())
        optimizer.step()
        time.sleep(0.15)
        if step % 20 == 0:
            manager.save(model.state_dict(), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
