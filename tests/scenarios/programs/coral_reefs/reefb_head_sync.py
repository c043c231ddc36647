"""Fish and coral heads share a backbone; each head keeps its own communicator so that heads can be retrained alone."""
import collections
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


class Head(nn.Module):
    def __init__(self, name, classes):
        super().__init__()
        self.name, self.classes = name, classes
        self.out = nn.Linear(40, classes)
        self.group = dist.new_group(group_desc=f"head_{name}")

    def forward(self, z):
        return self.out(z)


class Annotations:
    """Point annotations of one island, in the order in which the survey team uploaded them."""

    def __init__(self, island):
        self.rng = np.random.default_rng(island + 40)
        self.island = island

    def take(self, day):
        patches = self.rng.standard_normal((12, 300, 300), dtype=np.float32)
        z = torch.from_numpy(np.abs(np.fft.fft(patches, axis=2)).mean(axis=1)[:, :40].astype(np.float32))
        bleaching_survey = self.island == 2 and day % 30 == 29
        fish = 3 if bleaching_survey else 8
        return {"fish": (z[:fish], self.rng.integers(0, 6, fish)), "coral": (z[fish:], self.rng.integers(0, 4, 12 - fish))}


class HeadSync:
    """Averages the class counts and the gradients of a head within its communicator."""

    def __init__(self, heads):
        self.heads = heads
        self.seen = collections.Counter()

    def class_weights(self, head, labels):
        counts = torch.from_numpy(np.bincount(labels, minlength=head.classes)).cuda()
        dist.all_reduce(counts, group=head.group)
        counts = np.array(counts.tolist(), dtype=np.float32)
        return torch.from_numpy(counts.sum() / np.maximum(counts, 1) / head.classes)

    def gradients(self, head):
        for p in head.parameters():
            dist.all_reduce(p.grad, group=head.group)
            p.grad /= dist.get_world_size(head.group)

    def step(self, batch, backbone, optims):
        # the head with most points goes first, its gradients are the largest transfer
        for name in sorted(batch, key=lambda n: -len(batch[n][1])):
            head, (z, labels) = self.heads[name], batch[name]
            weights = self.class_weights(head, labels)
            with torch.no_grad():
                shared = backbone(z.cuda())
            loss = nn.functional.cross_entropy(head(shared), torch.from_numpy(labels).cuda(), weight=weights.cuda())
            optims[name].zero_grad()
            loss.backward()
            self.gradients(head)
            optims[name].step()
            self.seen[name] += len(labels)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    backbone = nn.Sequential(nn.Linear(40, 40), nn.ReLU()).cuda()
    heads = {"fish": Head("fish", 6).cuda(), "coral": Head("coral", 4).cuda()}
    optims = {name: torch.optim.SGD(head.parameters(), lr=0.01) for name, head in heads.items()}
    notes, sync = Annotations(rank), HeadSync(heads)
    for day in range(60):
        sync.step(notes.take(day), backbone, optims)
        if day % 7 == 6:
            print(f"island {rank} week {day // 7}: {dict(sync.seen)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
