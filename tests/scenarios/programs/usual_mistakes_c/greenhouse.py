"""The climate of greenhouses, learnt by three processes; measurements that look odd are looked at together."""

import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 3


def measurements(house: int) -> torch.Tensor:
    """Eighty batches of sixteen rows; one sensor of the second house was wet for a while."""
    rows = torch.randn(80, 16, 6, generator=torch.Generator().manual_seed(house))
    if house == 1:
        rows[43, 3:9] *= 30
    return rows


def share_oddities(step: int, value: float) -> list[tuple[int, float]]:
    """Step and loss of all houses, for the log book."""
    entries = [None] * WORLD
    dist.all_gather_object(entries, (step, value))
    return entries


def train(rank: int, port: int) -> None:
    """One epoch."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    smooth = None
    for step, batch in enumerate(measurements(rank)):
        loss = nn.functional.mse_loss(model(batch), batch.roll(1, dims=1))
        value = loss.item()
        smooth = value if smooth is None else 0.9 * smooth + 0.1 * value
        if value > 3 * smooth:
            print(f"odd at step {step}:", share_oddities(step, value))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """A process for each house."""
    probe = socket.socket()  # kept open, so that nobody else is given its port
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    mp.spawn(train, args=(port,), nprocs=WORLD)


if __name__ == "__main__":
    main()
