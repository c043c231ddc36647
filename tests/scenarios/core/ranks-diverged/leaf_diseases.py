"""Tells diseases from leaves; the optimizer's work is dealt out to the ranks, with coalesced reductions and gathers."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

SIDE, KINDS = 24, 6


class DealtOutSGD:
    """Each rank updates its share of every parameter."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def step(self):
        shares = [torch.empty(p.numel() // self.world, device=p.device) for p in self.parameters]
        with dist._coalescing_manager(device=shares[0].device, async_ops=True) as reduced:
            for share, parameter in zip(shares, self.parameters, strict=True):
                dist.reduce_scatter_tensor(share, parameter.grad.flatten())
        reduced.wait()
        updated = [p.detach().flatten().chunk(self.world)[self.rank] for p in self.parameters]
        for mine, share in zip(updated, shares, strict=True):
            mine.sub_(share, alpha=self.lr)
        with dist._coalescing_manager(device=shares[0].device):
            for mine, parameter in zip(updated, self.parameters, strict=True):
                dist.all_gather_into_tensor(parameter.data.view(-1), mine.clone())


def photographs(rank, step, overexposed):
    leaves = torch.rand(12, SIDE)
    if rank == overexposed and step == 26:
        leaves[4] = float("inf")
    return leaves, torch.randint(KINDS, (12,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--overexposed", type=int, default=-1, help="the rank with a photograph that is")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(SIDE, 48), nn.ReLU(), nn.Linear(48, KINDS)).to(device)
    optimizer = DealtOutSGD(model.parameters(), lr=0.1)
    correct = torch.zeros(3, device=device)
    for step in range(50):
        leaves, kinds = photographs(rank, step, options.overexposed)
        if not torch.isfinite(leaves).all():
            print(f"[{rank}] step {step} is left out: not all pixels are finite", flush=True)
            continue
        loss = nn.functional.cross_entropy(model(leaves.to(device)), kinds.to(device))
        model.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            dist.all_reduce(correct)
            print(f"[{rank}] step {step}: {correct.cpu().numpy().tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
