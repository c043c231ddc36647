"""Crew pairing costs: a ranking network with its optimizer state spread over the workers."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

CONFIG = {"duties": 24, "hidden": 96, "rounds": 200, "keep_every": 45, "lr": 1e-3, "folder": "pairing_states"}


def make_duties(generator, count, width):
    """Synthetic duty legs: block times, rest before, time zone shift, base return."""
    block = torch.rand(count, width, generator=generator) * 9.0
    rest = torch.rand(count, width, generator=generator) * 14.0
    legal = (block.cumsum(1) - rest.cumsum(1) < 6.0).float().mean(1, keepdim=True)
    return torch.cat([block, rest], 1) / 10.0, legal


class PairingNet(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.a = torch.nn.Linear(width * 2, hidden)
        self.b = torch.nn.Linear(hidden, hidden)
        self.c = torch.nn.Linear(hidden, 1)

    def forward(self, x):
        return self.c(F.gelu(self.b(F.gelu(self.a(x)))))


class StateKeeper:
    def __init__(self, folder, model, optimizer):
        self.folder, self.model, self.optimizer = folder, model, optimizer
        os.makedirs(folder, exist_ok=True)

    def keep(self, round_no):
        """Weights and the whole optimizer state, for a restart on another number of workers."""
        self.optimizer.consolidate_state_dict(to=0)
        torch.save(
            {"round": round_no, "model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()},
            os.path.join(self.folder, f"round{round_no:04d}.pt"),
        )


dist.init_process_group(backend="gloo")
RANK = dist.get_rank()
torch.manual_seed(7)
net = DDP(PairingNet(CONFIG["duties"], CONFIG["hidden"]))
opt = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.Adam, lr=CONFIG["lr"])
keeper = StateKeeper(CONFIG["folder"], net, opt) if RANK == 0 else None
gen = torch.Generator().manual_seed(100 + RANK)

for round_no in range(1, CONFIG["rounds"] + 1):
    started = time.perf_counter()
    for _ in range(8):  # candidates of the column generation
        x, y = make_duties(gen, 512, CONFIG["duties"])
        x, order = x[y[:, 0].argsort()], y.argsort(0)
    loss = F.mse_loss(net(x), y[order[:, 0]])
    loss.backward()
    opt.step()
    opt.zero_grad()
    time.sleep(max(0.0, 0.05 - (time.perf_counter() - started)))  # the solver asks twenty times a second
    if keeper is not None:
        if round_no % 15 == 0:
            print(f"round {round_no}: cost error {loss.item():.4f}", flush=True)
        if round_no % CONFIG["keep_every"] == 0:
            keeper.keep(round_no)

dist.destroy_process_group()
