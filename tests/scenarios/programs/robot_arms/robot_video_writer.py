"""Diffusion policy on pushing episodes; sample videos are written by a background thread."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class VideoWriter:
    """Encodes sampled trajectories without holding up the training."""

    def __init__(self, path):
        self.path, self.jobs = path, queue.Queue()
        self.thread = threading.Thread(target=self._encode, name="video")
        self.thread.start()

    def _encode(self):
        with open(self.path, "wb") as f:
            while (clip := self.jobs.get()) is not None:
                f.write((clip.clamp(0, 1) * 255).byte().numpy().tobytes())
                f.flush()

    def add(self, clip):
        self.jobs.put(clip)

    def close(self):
        self.jobs.put(None)
        self.thread.join()


class Denoiser(torch.nn.Module):
    def __init__(self, horizon=16, dim=2, width=96):
        super().__init__()
        self.shape = (horizon, dim)
        self.net = torch.nn.Sequential(torch.nn.Linear(horizon * dim + 1, width), torch.nn.Mish(), torch.nn.Linear(width, horizon * dim))

    def forward(self, noisy, t):
        return self.net(torch.cat([noisy.flatten(1), t], 1)).view(-1, *self.shape)


class Episodes:
    def __init__(self, rank, n=150):
        g = torch.Generator().manual_seed(rank)
        self.items = [torch.rand(1, 2, generator=g) + torch.rand(16, 2, generator=g).cumsum(0) / 8 for _ in range(n)]
        if rank == 1:
            self.items[97] = self.items[97][:9]  # recording stopped when the battery died

    def batch(self, i, size=2):
        n = len(self.items)
        return torch.stack([self.items[(i * size + k) % n] for k in range(size)])


def train(rank, writer):
    torch.manual_seed(0)
    model = DDP(Denoiser())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Episodes(rank)
    for i in range(400):
        clean = data.batch(i)
        t = torch.rand(len(clean), 1)
        noise = torch.randn_like(clean)
        noisy = (1 - t)[..., None] * clean + t[..., None] * noise
        loss = (model(noisy, t) - (noise - clean)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 20 == 0:
            writer.add(clean[0])
            if rank == 0:
                print(f"step {i} loss {loss.item():.3f}", flush=True)
        time.sleep(0.05)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    writer = VideoWriter(f"samples_{rank}.raw")
    train(rank, writer)
    writer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
