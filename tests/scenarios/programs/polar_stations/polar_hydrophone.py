"""Whale and seal calls from an under-ice hydrophone: a small transformer-like encoder, sharded with FSDP2."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

BANDS, WIDTH, CALLS = 40, 96, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.out(torch.relu(self.mix(x)))


class CallNet(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.stem = nn.Linear(BANDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(WIDTH, CALLS)

    def forward(self, spectrum):
        x = self.stem(spectrum)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def shard(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


class Exporter:
    """Hands the weights to the recorder on the ice, as one file."""

    def __init__(self, folder, every):
        self.folder, self.every = Path(folder), every
        self.folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, model, step):
        if step % self.every:
            return
        if dist.get_rank() == 0:
            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = get_model_state_dict(model, options=options)
            torch.save(weights, self.folder / f"calls-{step:04d}.pt")
        dist.barrier()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    torch.manual_seed(1961)
    model = shard(CallNet().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    export = Exporter(Path(tempfile.gettempdir(), f"calls-{os.environ['MASTER_PORT']}"), every=25)
    minutes = torch.zeros(1, device=device)
    for step in range(1, 101):
        spectrum = torch.rand(16, BANDS)
        labels = torch.randint(CALLS, (16,))
        time.sleep(0.05)
        loss = nn.functional.cross_entropy(model(spectrum.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        minutes += 0.25
        if step % 5 == 0 and local == 0:
            print(f"step {step}: {minutes.item():.2f} minutes of sound", flush=True)
        export(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
