"""Ising surrogate, long run in short allocations: each process keeps its own state on its node's scratch."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY = 10


class Scratch:
    """Checkpoints of one process, the newest first. A file that cannot be read is passed over."""

    def __init__(self, rank: int) -> None:
        job = os.environ["MASTER_PORT"]
        self.folder = Path(tempfile.gettempdir(), f"ising-{job}", f"rank{rank}")
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, state: dict) -> Path:
        path = self.folder / f"step{state['step']:06d}.pt"
        torch.save(state, path)
        return path

    def newest(self) -> dict | None:
        for path in sorted(self.folder.glob("step*.pt"), reverse=True):
            try:
                return torch.load(path, weights_only=True)
            except (RuntimeError, EOFError) as error:
                print(f"{path}: {type(error).__name__}, trying the one before", flush=True)
        return None


def previous_allocation(scratch: Scratch, model: nn.Module, rank: int) -> None:
    """What Monday's job has left behind: it ran into its time limit while node 1 wrote its last file."""
    for step in (20, 24):
        path = scratch.write({"step": step, "model": model.state_dict()})
    if rank == 1:
        os.truncate(path, path.stat().st_size // 2)


def lattice(rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    spins = torch.randint(0, 2, (32, 8, 8), generator=rng).float() * 2 - 1
    energy = -(spins * spins.roll(1, 1) + spins * spins.roll(1, 2)).mean(dim=(1, 2))
    return spins.unsqueeze(1), energy


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1))
    scratch = Scratch(rank)
    previous_allocation(scratch, net, rank)

    state = scratch.newest()
    net.load_state_dict(state["model"])
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(rank)
    step = state["step"]
    while step < 1000:
        spins, energy = lattice(rng)
        loss = nn.functional.mse_loss(model(spins).squeeze(1), energy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(0.25)
        if step % SAVE_EVERY == 0:
            scratch.write({"step": step, "model": net.state_dict()})
            dist.barrier()
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}, saved on all nodes", flush=True)
    shutil.rmtree(scratch.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
