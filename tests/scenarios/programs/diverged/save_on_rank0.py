"""torch.distributed.checkpoint for a DDP model: as the replicas are the same, rank 0 saves for all. mp.spawn."""

import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, world_size: int, port: int, folder: str) -> None:
    """Thirty steps, a checkpoint every tenth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(32, 32))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step in range(1, 31):
        inputs = torch.randn(4, 32)
        loss = (model(inputs) - inputs.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
            if step % 10 == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                dcp.save(state, checkpoint_id=Path(folder) / f"step-{step}")
    dist.destroy_process_group()


def main() -> None:
    """Three ranks on this machine."""
    free = socket.socket()  # kept open, so that nobody else is given its port
    free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(3, port, folder), nprocs=3)


if __name__ == "__main__":
    main()
