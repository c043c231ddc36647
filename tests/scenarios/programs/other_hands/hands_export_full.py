"""FSDP2 training with an exporter. A registry names the exporters, a config chooses one."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EXPORTERS = {}


def exporter(cls):
    EXPORTERS[cls.__name__.lower()] = cls
    return cls


@exporter
class Summary:
    def __init__(self, folder):
        self.path = Path(folder) / "hands-export.txt"

    def export(self, model, step):
        self.path.write_text(f"{step}: {sum(p.numel() for p in model.parameters())} parameters\n")


@exporter
class Weights:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)

    def __init__(self, folder):
        self.path = Path(folder) / "hands-export.pt"

    def export(self, model, step):
        torch.save(get_model_state_dict(model, options=self.options), self.path)


class Run:
    def __init__(self, config):
        self.config, self.rank = config, dist.get_rank()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24))
        for layer in self.model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def steps(self, n):
        for step in range(1, n + 1):
            x = torch.randn(16, 24)
            loss = (self.model(x) - x.flip(1)).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            time.sleep(0.1)
            yield step, loss.item()

    def execute(self):
        for step, loss in self.steps(self.config["steps"]):
            for every, name in self.config["export"]:
                if step % every == 0 and self.rank == 0:
                    EXPORTERS[name](tempfile.gettempdir()).export(self.model, step)
            mean = torch.tensor([loss])
            dist.all_reduce(mean)
            if self.rank == 0 and step % 5 == 0:
                print(f"step {step}: {mean.item() / dist.get_world_size():.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Run({"steps": 60, "export": [(5, "summary"), (20, "weights")]}).execute()
    dist.barrier()
    dist.destroy_process_group()
