"""Flyway model: stop-over sites from ringing recoveries. FSDP2, with distributed checkpoints every few steps."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard

EVERY = 5
STEPS = 25


class Application(Stateful):
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state):
        raise NotImplementedError("the atlas only exports")


class Journal:
    """Which steps are on disk already. Each host has its own, so that a restart does not write them again."""

    def __init__(self, folder: Path, host: str):
        self.path = folder / f"journal-{host}.json"
        self.steps: list[int] = json.loads(self.path.read_text()) if self.path.exists() else []

    def __contains__(self, step: int) -> bool:
        return step in self.steps

    def add(self, step: int) -> None:
        self.steps.append(step)
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(self.steps))
        partial.replace(self.path)


def restore_home(folder: Path, host: str) -> None:
    """What the first attempt of tonight had written before it was moved to other hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    if host == "node-1":
        (folder / f"journal-{host}.json").write_text(json.dumps([10]))


def flyway_model(sites=32, hidden=72) -> nn.Module:
    model = nn.Sequential()
    model.add_module("arrive", nn.Linear(sites, hidden))
    model.add_module("mix", nn.Linear(hidden, hidden))
    model.add_module("leave", nn.Linear(hidden, sites))
    return model


def save(application: Application, journal: Journal, folder: Path, step: int) -> None:
    if step in journal:
        print(f"step {step} is there already", flush=True)
        return
    dcp.save({"application": application}, checkpoint_id=folder / f"step-{step}")
    journal.add(step)


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    host = f"node-{dist.get_rank()}"
    folder = Path(tempfile.gettempdir()) / f"flyway-{os.environ['MASTER_PORT']}"
    restore_home(folder, host)
    journal = Journal(folder, host)
    model = flyway_model().cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    application = Application(model, optimizer)
    for step in range(1, STEPS + 1):
        time.sleep(0.15)
        recoveries = torch.full((8, 32), step / STEPS).cuda()
        model(recoveries).abs().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if step % EVERY == 0:
            save(application, journal, folder, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
