"""FSDP2 training with a checkpoint callback that writes one consolidated file."""
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Callback:
    def on_step_end(self, trainer):
        pass


class Progress(Callback):
    def on_step_end(self, trainer):
        if trainer.rank == 0 and trainer.step % 10 == 0:
            print(f"step {trainer.step} loss {trainer.loss:.4f}", flush=True)


class Consolidate(Callback):
    def __init__(self, folder, every):
        self.folder, self.every = Path(folder), every

    def on_step_end(self, trainer):
        if trainer.step % self.every:
            return
        if trainer.rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(trainer.model, options=options)
            torch.save(weights, self.folder / f"step-{trainer.step}.pt")
        dist.barrier()


class Trainer:
    def __init__(self, callbacks):
        self.rank = dist.get_rank()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        layers = [nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4)]
        self.model = nn.Sequential(*layers)
        for layer in self.model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.callbacks = callbacks
        self.step, self.loss = 0, 0.0

    def fit(self, steps):
        while self.step < steps:
            x = torch.randn(16, 20)
            target = x.abs().sum(1).remainder(4).long()
            loss = nn.functional.cross_entropy(self.model(x), target)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step, self.loss = self.step + 1, loss.item()
            time.sleep(0.07)
            for callback in self.callbacks:
                callback.on_step_end(self)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer([Progress(), Consolidate("/tmp/night-full-state", every=30)]).fit(300)
    dist.destroy_process_group()
