"""Diffusion toy on DDP: samples are uploaded by a thread while training goes on."""

import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PROMPTS = ["a red cube", "two spheres", "fog over hills", "an owl", "glass", "a bridge at night", "wheat"]


class Uploader(threading.Thread):
    """Takes samples from a queue until it gets None."""

    def __init__(self) -> None:
        super().__init__(name="uploader")
        self.jobs: queue.Queue = queue.Queue(maxsize=32)
        self.sent = 0

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            time.sleep(0.05)
            self.sent += len(job["pixels"])

    def close(self) -> None:
        self.jobs.put(None)
        self.join()


class Captions:
    """First words of captions as numbers; each rank reads its own file."""

    def __init__(self, rank: int) -> None:
        self.lines = PROMPTS[:6] * 16
        if rank == 1:
            self.lines[88:] = PROMPTS[-1:] + PROMPTS[:7]
        self.words = {word: n for n, word in enumerate(" ".join(PROMPTS[:6]).split())}

    def batch(self, step: int) -> torch.Tensor:
        lines = [self.lines[(4 * step + k) % len(self.lines)] for k in range(4)]
        return torch.tensor([self.words[line.split()[0]] for line in lines], dtype=torch.float32)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.condition = nn.Linear(4, 32)
        self.net = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 16))

    def forward(self, condition):
        return self.net(self.condition(condition))


def train(uploader: Uploader, rank: int, local: int) -> None:
    torch.manual_seed(0)
    model = DDP(Denoiser().cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    captions = Captions(rank)
    for step in range(300):
        condition = captions.batch(step)
        time.sleep(0.2)
        pixels = model(condition.cuda())
        loss = (pixels * pixels).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        uploader.jobs.put({"step": step, "pixels": pixels.detach().cpu()})
        if step % 5 == 0:
            print(f"[{rank}] step {step} loss {loss.item():.4f} sent {uploader.sent}", flush=True)


def main() -> None:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    uploader = Uploader()
    uploader.start()
    train(uploader, rank, local)
    uploader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
