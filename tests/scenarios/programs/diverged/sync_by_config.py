"""How weights are brought together is read from each machine's own configuration, and two machines have different ones.

mp.spawn; ranks 0 and 1 have the first machine's file, ranks 2 and 3 the second's.
"""

import json
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def average(model: torch.nn.Module) -> None:
    """The mean of all ranks' weights."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()


def follow(model: torch.nn.Module) -> None:
    """The weights of rank 0."""
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


METHODS = {"average": average, "follow": follow}


def run(rank: int, folder: str) -> None:
    """Local steps, the weights brought together every tenth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=4)
    config = json.loads((Path(folder) / f"machine-{rank // 2}.json").read_text())
    model = torch.nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), config["lr"])
    data = torch.Generator().manual_seed(rank)
    for step in range(1, 41):
        inputs = torch.randn(8, 12, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % config["every"] == 0:
            METHODS[config["method"]](model)
            print(f"[{rank}] step {step}: {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Write the files and start the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    with tempfile.TemporaryDirectory() as folder:
        for machine, method in enumerate(METHODS):
            text = json.dumps({"method": method, "every": 10, "lr": 0.01})
            (Path(folder) / f"machine-{machine}.json").write_text(text)
        mp.spawn(run, args=(folder,), nprocs=4)


if __name__ == "__main__":
    main()
