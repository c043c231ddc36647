"""Weather nowcasting with background checkpoints: one save in flight at most."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SHARDS = 40
SECONDS_PER_SHARD = 0.3


def write_shards(folder, step, arrays):
    """Runs in its own process and keeps below the quota of the shared file system."""
    target = os.path.join(folder, f"step_{step}")
    os.makedirs(target)
    blob = b"".join(a.tobytes() for a in arrays)
    size = len(blob) // SHARDS + 1
    for shard in range(SHARDS):
        began = time.monotonic()
        with open(os.path.join(target, f"shard_{shard:03d}"), "wb") as f:
            f.write(blob[shard * size:(shard + 1) * size])
            f.flush()
            os.fsync(f.fileno())
        time.sleep(max(0.0, SECONDS_PER_SHARD - (time.monotonic() - began)))
    open(os.path.join(target, "complete"), "w").close()


class BackgroundSaver:
    def __init__(self, folder):
        self.folder = folder
        self.context = mp.get_context("spawn")
        self.writer = None

    def wait(self):
        if self.writer is not None:
            self.writer.join()
            if self.writer.exitcode != 0:
                raise RuntimeError("checkpoint writer failed")
            self.writer = None

    def save(self, module, step):
        self.wait()
        arrays = [t.detach().numpy().copy() for t in module.state_dict().values()]
        self.writer = self.context.Process(target=write_shards, args=(self.folder, step, arrays))
        self.writer.start()


class Nowcaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(2, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, frames):
        return self.b(torch.relu(self.a(frames)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(Nowcaster())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saver = BackgroundSaver(tempfile.mkdtemp(prefix="nowcast_")) if rank == 0 else None
    for step in range(1, 71):
        frames = torch.rand(4, 3, 12, 12)
        loss = nn.functional.mse_loss(model(frames[:, :2]), frames[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
        if step == 30:
            if saver:
                saver.save(model.module, step)
            dist.barrier()
        if step == 38:
            if saver:
                saver.wait()
                print(f"step {step}: checkpoint published", flush=True)
            dist.barrier()
    if saver:
        saver.wait()
        print(f"loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
