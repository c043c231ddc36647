"""Emulator of an N-body code, sharded with FSDP2; snapshots of the run are written to a slow project disk."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

FOLDER = Path(tempfile.gettempdir()) / f"emulator-{os.environ.get('MASTER_PORT', 0)}"
DISK_MIB_S = 2.5


class Emulator(nn.Module):
    """Power spectrum at 128 wavenumbers from six cosmological parameters."""

    def __init__(self, width=1024, depth=4):
        super().__init__()
        self.lift = nn.Linear(6, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 128)

    def forward(self, theta):
        h = torch.tanh(self.lift(theta))
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        return self.out(h)


def spectra(count, generator):
    theta = torch.rand(count, 6, generator=generator)
    k = torch.logspace(-3, 1, 128)
    tilt = 0.8 + 0.4 * theta[:, :1]
    return theta, torch.log(k**tilt / (1 + (k / (0.02 + 0.1 * theta[:, 1:2])) ** 2) ** 1.5 + 1e-6)


class ProjectDisk:
    """Writes in blocks and does not go faster than the quota allows."""

    def __init__(self, rate=DISK_MIB_S, block=1 << 17):
        self.rate, self.block = rate, block

    def write(self, path, blob):
        started = time.monotonic()
        with open(path, "wb") as file:
            for at in range(0, len(blob), self.block):
                file.write(blob[at : at + self.block])
                file.flush()
                os.fsync(file.fileno())
                time.sleep(max(0.0, (at + self.block) / (self.rate * 2**20) - (time.monotonic() - started)))


def pack(state):
    names = sorted(state)
    header = "\n".join(f"{name} {tuple(state[name].shape)}" for name in names).encode()
    return len(header).to_bytes(8, "little") + header + b"".join(state[name].numpy().tobytes() for name in names)


def snapshot(model, step, disk):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        path = FOLDER / f"step-{step:04d}.bin"
        blob = pack(state)
        print(f"step {step}: writing {len(blob) / 2**20:.0f} MiB to {path.name}", flush=True)
        disk.write(path, blob * 2)
    dist.barrier()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    FOLDER.mkdir(exist_ok=True)
    model = Emulator()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    disk = ProjectDisk()
    for step in range(1, 91):
        theta, target = spectra(64, generator)
        loss = nn.functional.mse_loss(model(theta), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 60:
            snapshot(model, step, disk)
    if dist.get_rank() == 0:
        print(f"done, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
