"""Predicts copper in the melt from the scrap mix. After every campaign rank 0 has the yard's optimiser write the buying plan."""
import argparse
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)

OPTIMISER = """
import sys
suppliers = int(sys.argv[1])
for supplier in range(suppliers):
    for quality in ("shredded", "turnings", "bundles", "rail"):
        price = 240 + (supplier * 37 + len(quality) * 11) % 90
        print(f"supplier {supplier:04d} {quality:>10} {price} EUR/t copper {0.1 + supplier % 7 / 30:.3f} %")
print("plan complete")
"""


class ScrapYard:
    """Random charges of four qualities; the copper comes mainly with the shredded scrap."""

    copper = torch.tensor([0.42, 0.18, 0.11, 0.06])

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def charges(self, count):
        shares = torch.rand(count, 4, generator=self.generator)
        shares = shares / shares.sum(1, keepdim=True)
        for _ in range(40):  # layers of the basket mix while they melt
            shares = 0.98 * shares + 0.02 * shares[torch.randperm(count, generator=self.generator)]
        return shares, (shares * self.copper).sum(1, keepdim=True)


def buying_plan(suppliers):
    tool = subprocess.Popen([sys.executable, "-c", OPTIMISER, str(suppliers)], stdout=subprocess.PIPE, text=True)
    status = tool.wait()
    lines = tool.stdout.read().splitlines()
    if status != 0 or lines[-1] != "plan complete":
        raise RuntimeError(f"optimiser ended with {status}")
    return lines


def campaign(number, steps, yard, model, optimizer, device):
    for _ in range(steps):
        shares, copper = (t.to(device) for t in yard.charges(64))
        loss = ((model(shares) - copper) ** 2).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--campaigns", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--suppliers", type=int, default=60, help="in the first campaign; later ones ask more of them")
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1)).to(device)
    net = DDP(net, device_ids=[local_rank])
    sgd = torch.optim.SGD(net.parameters(), lr=0.05)
    yard = ScrapYard(seed=dist.get_rank())
    for number in range(args.campaigns):
        campaign(number, args.steps, yard, net, sgd, device)
        if dist.get_rank() == 0:
            plan = buying_plan(args.suppliers * 2**number)
            print(f"campaign {number}: {len(plan) - 1} offers", flush=True)
        dist.barrier()
    dist.destroy_process_group()
