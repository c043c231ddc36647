"""Denoises magnetic sound and leaves a master copy of model and stems on the archive's slow share."""
import hashlib
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, noisy):
        return noisy - self.net(noisy)


class ArchiveShare:
    """Writes as fast as the archive allows (the share serves the projection rooms as well)."""

    def __init__(self, bytes_per_second=1 << 20, block=256 << 10):
        self.rate, self.block = bytes_per_second, block

    def write(self, path, data):
        digest, began = hashlib.sha256(), time.monotonic()
        with open(path, "wb") as out:
            for start in range(0, len(data), self.block):
                piece = data[start : start + self.block]
                out.write(piece)
                out.flush()
                os.fsync(out.fileno())
                digest.update(piece)
                ahead = (start + len(piece)) / self.rate - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
        return digest.hexdigest()


class Session:
    def __init__(self):
        torch.manual_seed(6)
        self.model = Denoiser()
        self.optimiser = torch.optim.Adam(self.model.parameters(), 1e-3)

    def steps(self, count):
        for _ in range(count):
            time.sleep(0.03)
            clean = torch.randn(16, 64)
            loss = (self.model(clean + 0.2 * torch.randn_like(clean)) - clean).square().mean()
            self.optimiser.zero_grad()
            loss.backward()
            grads = torch.cat([p.grad.flatten() for p in self.model.parameters()])
            dist.all_reduce(grads)
            grads /= dist.get_world_size()
            sizes = [p.numel() for p in self.model.parameters()]
            for p, mean in zip(self.model.parameters(), grads.split(sizes)):
                p.grad.copy_(mean.view_as(p))
            self.optimiser.step()
        return loss.item()

    def master_copy(self, share):
        if dist.get_rank() == 0:
            buffer = io.BytesIO()
            torch.save({"model": self.model.state_dict(), "stems": torch.randn(13 << 18)}, buffer)
            path = os.path.join(tempfile.mkdtemp(prefix="master-"), "master.pt")
            print("master copy", share.write(path, buffer.getvalue())[:12], flush=True)
            os.remove(path)
        dist.barrier()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    session = Session()
    first = session.steps(80)
    session.master_copy(ArchiveShare())
    last = session.steps(60)
    if dist.get_rank() == 0:
        print(f"error {first:.3f} -> {last:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
