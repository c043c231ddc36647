"""Trains, then waits for the mirror's thread to copy the checkpoints away before the job ends."""
import queue
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FOLDER = Path("/tmp/night-late-mirror")


class Mirror:
    def __init__(self, rank):
        self.rank, self.waiting = rank, queue.Queue()
        self.thread = threading.Thread(target=self.copy, name="mirror")
        self.thread.start()

    def copy(self):
        while (path := self.waiting.get()) is not None:
            data = path.read_bytes()
            target = FOLDER / f"mirror-{path.name}"
            with target.open("wb") as out:
                for start in range(0, len(data), 2048):
                    out.write(data[start : start + 2048])
                    time.sleep(0.12)
            print(f"rank {self.rank}: {target.name} is there", flush=True)

    def close(self):
        self.waiting.put(None)
        self.thread.join()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    FOLDER.mkdir(exist_ok=True)
    mirror = Mirror(rank) if rank == 0 else None
    net = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48))
    model = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(1, 61):
        x = torch.randn(16, 48)
        loss = nn.functional.mse_loss(model(x), x.cumsum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 15 == 0 and mirror:
            path = FOLDER / f"{step}.pt"
            torch.save(net.state_dict(), path)
            mirror.waiting.put(path)
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    if mirror:
        mirror.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
