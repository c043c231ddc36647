"""Language model pre-training with a monitor that watches the activations of some of the layers."""

import json
import math
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
VOCABULARY, WIDTH, DEPTH = 128, 32, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + torch.tanh(self.mix(x).cumsum(1) / math.sqrt(x.shape[1]))
        return x + self.down(torch.relu(self.up(x)))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ActivationMonitor:
    """Each rank watches its share of the chosen modules, so that no rank pays for all of the hooks."""

    def __init__(self, model, suffix, every, folder):
        names = [name for name, _ in model.named_modules() if name.endswith(suffix)][::2]
        mine = names[dist.get_rank() :: dist.get_world_size()]
        self.every = every
        self.folder = folder
        self.sums = defaultdict(list)
        for name, module in model.named_modules():
            if name in mine:
                module.register_forward_hook(self._hook(name))

    def _hook(self, name):
        return lambda module, inputs, output: self.sums[name].append(output.detach().abs().mean().item())

    def after_step(self, step):
        if (step + 1) % self.every == 0:
            merged = self.gather_and_aggregate()
            if merged and dist.get_rank() == 0:
                with open(self.folder / "stats.jsonl", "a") as file:
                    file.write(json.dumps({"step": step, **merged}) + "\n")

    def gather_and_aggregate(self):
        local = {name: sum(values) / len(values) for name, values in self.sums.items()}
        self.sums.clear()
        if not local:
            return {}
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, local)
        return {name: value for part in parts for name, value in part.items()}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    core = TinyLM()
    folder = Path(tempfile.gettempdir(), f"stats-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    monitor = ActivationMonitor(core, ".up", 30, folder)
    model = DistributedDataParallel(core)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(600):
        tokens = torch.randint(0, VOCABULARY, (4, 33), generator=generator)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.after_step(step)
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
