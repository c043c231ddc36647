"""Isolated sign recognition from hand key points, streamed from each rank's own shards."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

SIGNS, JOINTS, FRAMES = 25, 42, 40


class SignShards(IterableDataset):
    """Clips of the signers `rank, rank + world, ...`; clips with too few visible hands are left out."""

    def __init__(self, signers, rank, world, visible=0.5):
        self.signers = list(range(signers))[rank::world]
        self.visible = visible

    def clips(self, signer):
        gen = torch.Generator().manual_seed(1000 + signer)
        base = 0.3 if signer % 7 == 5 else 0.75  # some record against a window
        for _ in range(40):
            sign = int(torch.randint(SIGNS, (1,), generator=gen))
            seen = base + 0.2 * torch.rand(1, generator=gen).item()
            points = torch.randn(FRAMES, JOINTS * 2, generator=gen) * 0.5
            points[:, sign] += 1.5
            yield points, sign, seen

    def __iter__(self):
        for signer in self.signers:
            for points, sign, seen in self.clips(signer):
                if seen >= self.visible:
                    yield points, sign


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Sequential(nn.Linear(JOINTS * 2, 192), nn.ReLU())
        self.motion = nn.GRU(192, 192, batch_first=True)
        self.sign = nn.Linear(192, SIGNS)

    def forward(self, points):
        return self.sign(self.motion(self.frame(points))[0].mean(1))


def run_epoch(model, loader, optimizer):
    right = total = 0
    for points, sign in loader:
        logits = model(points)
        loss = nn.functional.cross_entropy(logits, sign)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        right += int((logits.argmax(1) == sign).sum())
        total += len(sign)
    return right, total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    model = DistributedDataParallel(SignNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dataset = SignShards(int(os.environ.get("SIGNERS", "54")), rank, world)
    for epoch in range(4):
        counts = run_epoch(model, DataLoader(dataset, batch_size=8), optimizer)
        parts = [None] * world
        dist.all_gather_object(parts, {"right": counts[0], "total": counts[1]})
        if rank == 0:
            share = sum(p["right"] for p in parts) / sum(p["total"] for p in parts)
            print(f"epoch {epoch}: accuracy {share:.3f}", flush=True)


if __name__ == "__main__":
    main()
