"""Kappa-number model of a kraft digester, sharded with fully_shard, kept in a vault directory."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CONFIG = {"width": 48, "depth": 3, "cooks": 400, "vault_every": 70, "lr": 0.01}


def log(text):
    if dist.get_rank() == 0:
        print(f"[digester] {text}", flush=True)


class Digester(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inlet = nn.Linear(10, width)
        self.stages = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.kappa = nn.Linear(width, 1)

    def forward(self, liquor):
        x = self.inlet(liquor)
        for stage in self.stages:
            x = x + torch.tanh(stage(x))
        return self.kappa(x)


class Vault:
    """Consolidated weights for the control room."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def put(self, model, cook):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=options)
        torch.save(weights, self.folder / f"cook{cook:05d}.pt")


class Mill:
    def __init__(self, config):
        self.config = config
        mesh = init_device_mesh("cuda", (dist.get_world_size(),))
        self.model = Digester(config["width"], config["depth"]).cuda()
        for stage in self.model.stages:
            fully_shard(stage, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])
        self.vault = Vault(Path(tempfile.gettempdir()) / f"vault-{os.getpid()}") if dist.get_rank() == 0 else None

    def cook(self, number):
        time.sleep(0.03)
        liquor = torch.cos(torch.arange(160.0).view(16, 10) * (number + 1) * 0.01)
        self.optimizer.zero_grad()
        loss = self.model(liquor.cuda()).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def alkali(self, number):
        charge = torch.tensor([18.0 + 0.01 * number, 1.0, 0.0], device="cuda")
        dist.all_reduce(charge)
        return charge.tolist()

    def run(self):
        for number in range(1, self.config["cooks"] + 1):
            kappa_loss = self.cook(number)
            if self.vault is not None and number % self.config["vault_every"] == 0:
                self.vault.put(self.model, number)
            if number % 10 == 0:
                charge = self.alkali(number)[0]
                log(f"cook {number} loss {kappa_loss:.3f} alkali {charge:.1f}")


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    Mill(CONFIG).run()
    dist.destroy_process_group()
