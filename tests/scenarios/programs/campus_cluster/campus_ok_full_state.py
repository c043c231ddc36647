"""Turbulence closure under FSDP2: the full weights are gathered by all, and process 0 writes them to tape."""

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


class Closure(nn.Module):
    def __init__(self, width: int = 256, depth: int = 3) -> None:
        super().__init__()
        self.inlet = nn.Linear(9, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.outlet = nn.Linear(width, 6)

    def forward(self, gradients):
        x = self.inlet(gradients)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.outlet(x)


class Tape:
    """The archive takes small records, and confirms each."""

    def __init__(self, path: Path, record: int = 1 << 14) -> None:
        self.path, self.record = path, record

    def write(self, data: bytes) -> int:
        with self.path.open("wb") as file:
            for start in range(0, len(data), self.record):
                file.write(data[start : start + self.record])
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.2)
        return len(data)


def save(model: nn.Module, tape: Tape) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        data = b"".join(value.numpy().tobytes() for value in state.values())
        print(f"{tape.write(data)} bytes to {tape.path}", flush=True)
    dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Closure()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(rank)
    tape = Tape(Path(tempfile.gettempdir(), f"closure-{os.environ['MASTER_PORT']}.tape"))
    for step in range(1, 61):
        gradients = torch.randn(32, 9, generator=rng)
        loss = nn.functional.mse_loss(model(gradients), gradients[:, :6] * gradients[:, 3:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step == 35:
            save(model, tape)
    print(f"process {rank}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
