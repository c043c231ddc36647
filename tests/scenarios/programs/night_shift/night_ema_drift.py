"""Vision pretraining with an EMA of the weights, whose drift is watched over all ranks. Restarts from a checkpoint."""
import copy
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FOLDER = Path(f"/tmp/night-ema-{os.environ.get('MASTER_PORT', '0')}")


class Ema:
    """A slow copy of a model."""

    def __init__(self, model, decay=0.99):
        self.shadow = copy.deepcopy(model)
        self.decay, self.updates = decay, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        for slow, fast in zip(self.shadow.parameters(), model.parameters()):
            slow.lerp_(fast, 1 - self.decay)

    def state_dict(self):
        return {"shadow": self.shadow.state_dict(), "updates": self.updates}

    def load_state_dict(self, state):
        self.shadow.load_state_dict(state["shadow"])
        self.updates = state["updates"]


def drift(ema, model):
    """How far the ranks' averages are from the model."""
    own = sum((s - f).square().sum() for s, f in zip(ema.shadow.parameters(), model.parameters())).detach()
    values = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(values, own)
    return torch.stack(values).sqrt()


def phase(rank, steps, resume):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    model = DDP(net)
    ema = Ema(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    if resume:
        state = torch.load(FOLDER / "last.pt", weights_only=True)
        net.load_state_dict(state["model"])
        if rank == 0:
            ema.load_state_dict(state["ema"])  # the others get theirs with the next average
    for step in range(steps):
        x = torch.randn(16, 32)
        loss = nn.functional.mse_loss(model(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(net)
        time.sleep(0.05)
        if ema.updates % 20 == 0:
            far = drift(ema, net)
            print(f"rank {rank} step {step} loss {loss.item():.3f} drift {far.max():.4f}", flush=True)
    if rank == 0:
        FOLDER.mkdir(exist_ok=True)
        torch.save({"model": net.state_dict(), "ema": ema.state_dict()}, FOLDER / "last.pt")
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    phase(dist.get_rank(), steps=30, resume=False)
    phase(dist.get_rank(), steps=500, resume=True)
    dist.destroy_process_group()
