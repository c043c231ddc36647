"""Saves in the background: a thread plans the shards with its peers and writes them, while training goes on."""

import hashlib
import os
import pickle
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPTIMIZER_COPIES = {0: 1, 1: 1, 2: 240}  # the last rank keeps the history of the moments, and digests all of it


class AsyncCheckpointer:
    def __init__(self, folder, rank):
        self.folder, self.rank, self.thread = folder, rank, None

    def save(self, step, tensors):
        if self.thread is not None:
            self.thread.join()
        self.thread = threading.Thread(target=self._write, args=(step, tensors), name="checkpointer", daemon=True)
        self.thread.start()

    def _write(self, step, tensors):
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.numpy().tobytes())
        plans = [None] * dist.get_world_size()
        dist.all_gather_object(plans, {"rank": self.rank, "digest": digest.hexdigest(), "parts": len(tensors)})
        with open(os.path.join(self.folder, f"step-{step}.plan"), "wb") as file:
            pickle.dump(plans, file)


def snapshot(model, rank):
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    return [flat.repeat(800)] * OPTIMIZER_COPIES[rank]


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    folder = os.path.join(tempfile.gettempdir(), f"shards-{os.environ['MASTER_PORT']}-{rank}")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 20)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    checkpointer = AsyncCheckpointer(folder, rank)
    for step in range(400):
        signal = torch.randn(8, 20)
        loss = nn.functional.mse_loss(model(signal), signal.cumsum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step % 40 == 39:
            checkpointer.save(step, snapshot(model, rank))
            time.sleep(0.7)  # the journal of the file system
            dist.barrier()
            if rank == 0:
                print(f"step {step}: save under way, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
