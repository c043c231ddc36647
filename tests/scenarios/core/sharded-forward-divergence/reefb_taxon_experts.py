"""Benthic photo-quadrats: a shared trunk under DDP and one taxon expert per GPU (hard coral, soft coral, algae)."""
import argparse
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
DIM = 48


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits, group):
        ctx.splits, ctx.group = (out_splits, in_splits), group
        out = x.new_zeros(sum(out_splits), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out_splits, in_splits = ctx.splits
        back = grad.new_zeros(sum(in_splits), grad.shape[1])
        dist.all_to_all_single(back, grad.contiguous(), in_splits, out_splits, group=ctx.group)
        return back, None, None, None


class TaxonExperts(nn.Module):
    """Sends each patch to the GPU that owns its taxon and brings the result back."""

    def __init__(self, group):
        super().__init__()
        self.group = group
        self.expert = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.ReLU(), nn.Linear(2 * DIM, DIM))

    def forward(self, patches, taxon):
        if len(taxon) == 0:
            return patches
        order = np.argsort(taxon, kind="stable")
        sent = np.bincount(taxon, minlength=dist.get_world_size(self.group))
        mine = torch.from_numpy(sent).cuda()
        theirs = torch.empty_like(mine)
        dist.all_to_all_single(theirs, mine, group=self.group)
        received = theirs.tolist()
        routed = Exchange.apply(patches[torch.from_numpy(order).cuda()], received, sent.tolist(), self.group)
        return Exchange.apply(self.expert(routed), sent.tolist(), received, self.group)


class Transect:
    """Quadrats along one transect; a quadrat holds up to 40 annotated patches."""

    def __init__(self, site, length):
        self.rng = np.random.default_rng(100 + site)
        self.cover = np.clip(0.5 + 0.4 * np.sin(np.arange(length) / 9 + site), 0.15, None)
        if site == 1:
            self.cover[length * 2 // 3:] *= np.linspace(1, 0, length - length * 2 // 3) ** 6  # sand channel

    def __getitem__(self, i):
        n = int(40 * self.cover[i])
        pixels = self.rng.standard_normal((40, 256, 96), dtype=np.float32)
        frame = np.abs(np.fft.rfft(pixels, axis=1)).mean(1)[:, :DIM].astype(np.float32)
        return torch.from_numpy(frame), n, self.rng.integers(0, 3, n)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--quadrats", type=int, default=72)
    args = args.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    expert_group = dist.new_group(list(range(dist.get_world_size())))
    trunk = DistributedDataParallel(nn.Linear(DIM, DIM).cuda())
    experts, head = TaxonExperts(expert_group).cuda(), nn.Linear(DIM, 1).cuda()
    optim = torch.optim.AdamW([*trunk.parameters(), *experts.parameters(), *head.parameters()], lr=1e-3)
    transect = Transect(rank, args.quadrats)
    for i in range(args.quadrats):
        frame, n, taxon = transect[i]
        features = trunk(frame.cuda())
        described = experts(features[:n], taxon)
        loss = head(described).sum() + features.square().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        if i % 15 == 0:
            print(f"[{rank}] quadrat {i}: {n} patches, loss {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
