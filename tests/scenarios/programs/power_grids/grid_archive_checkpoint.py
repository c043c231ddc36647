"""Line rating model; the checkpoint with the optimizer's history goes to a slow archive, through rank 0."""
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Archive:
    """The archive takes some megabytes a second over its gateway."""

    def __init__(self, mb_per_s=6.0, block=256 * 1024):
        self.pause, self.block = block / (mb_per_s * 2**20), block

    def put(self, name, payload):
        with tempfile.NamedTemporaryFile(prefix="archive-", suffix=name) as f:
            view, sent = memoryview(payload), 0
            while sent < len(view):
                f.write(view[sent : sent + self.block])
                f.flush()
                os.fsync(f.fileno())
                sent += self.block
                time.sleep(self.pause)
                if sent % (64 * self.block) == 0:
                    print(f"{name}: {sent / 2**20:.0f} of {len(view) / 2**20:.0f} MB", flush=True)


def payload(model, optim, history):
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optim": optim.state_dict(), "history": history}, buffer)
    return buffer.getbuffer()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(160, 512), torch.nn.ReLU(), torch.nn.Linear(512, 160)))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    history, archive = torch.zeros(300, 256 * 256), Archive()
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, 161):
        weather = torch.randn(256, 160, generator=gen)
        loss = (model(weather) - weather.sin()).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        history[step % 300, : 160] = weather[0]
        time.sleep(0.04)
        if step % 80 == 0 and step < 160:
            if rank == 0:
                archive.put(f"ratings-{step}.pt", payload(model.module, optim, history))
            dist.barrier()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
