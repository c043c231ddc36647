# Survival model over trial sites: trains on mini cohorts, then evaluates every arm on held-out patients.
import math
import time
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CFG = {"steps": 45, "batch": 16, "covariates": 40, "eval_batch": 12, "epochs": 3, "lr": 0.01}
ENROLLED = {"placebo": [130, 141, 127, 138], "low_dose": [118, 109, 131, 122], "high_dose": [96, 90, 101, 71]}


class SiteCohort(Dataset):
    """Held-out patients of one arm at one site."""

    def __init__(self, arm, site):
        self.n = ENROLLED[arm][site] // 4
        self.offset = list(ENROLLED).index(arm) * 10_000 + site * 500

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.offset + i)
        x = torch.randn(CFG["covariates"], generator=g)
        t = torch.rand(1, generator=g) * 24
        return x, t


class HazardNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CFG["covariates"], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        return F.softplus(self.out(self.body(x)))


def mean_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def train(model, opt, site, epoch):
    for step in range(CFG["steps"]):
        g = torch.Generator().manual_seed(epoch * 9999 + step * 10 + site)
        x = torch.randn(CFG["batch"], CFG["covariates"], generator=g)
        t = torch.rand(CFG["batch"], 1, generator=g) * 24
        rate = model(x)
        loss = (rate * t - torch.log(rate + 1e-6)).mean()
        opt.zero_grad()
        loss.backward()
        mean_gradients(model)
        opt.step()
        time.sleep(0.03)  # visits are fetched from the site's register


@torch.no_grad()
def concordance(model, arm, site):
    """Running concordance over all sites, so that the dashboard has a curve and not a number."""
    curve = []
    for x, t in DataLoader(SiteCohort(arm, site), batch_size=CFG["eval_batch"]):
        rate = model(x)
        pairs = (rate[:, None] > rate[None]).float() * (t[:, None] < t[None]).float()
        parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, torch.stack([pairs.sum(), torch.tensor(float(len(x) ** 2))]))
        hit, n = torch.stack(parts).sum(0).tolist()
        curve.append(hit / n)
    return curve


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    site = dist.get_rank()
    torch.manual_seed(0)
    model = HazardNet()
    opt = torch.optim.SGD(model.parameters(), lr=CFG["lr"])
    history = defaultdict(list)
    for epoch in range(CFG["epochs"]):
        train(model, opt, site, epoch)
        arms = ["placebo"] if epoch == 0 else list(ENROLLED)
        for arm in arms:
            history[arm].append(concordance(model, arm, site)[-1])
        worst = torch.tensor([min(v[-1] for v in history.values())])
        dist.all_reduce(worst, op=dist.ReduceOp.MIN)
        if site == 0:
            print(f"epoch {epoch}", {k: round(v[-1], 3) for k, v in history.items()}, math.ceil(worst.item() * 100), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
