"""Storage arbitrage, under a small supervisor of its own: a planned move to other hosts, then on from the local scratch."""
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HOSTS = 3
MOVED = 17


class Scratch:
    """State on the host's own disk. Hosts with flash write more often."""

    def __init__(self, folder, rank):
        self.path = Path(folder) / f"host{rank}.pt"
        self.every = {0: 10, 1: 4, 2: 10}[rank]

    def load(self):
        return torch.load(self.path) if self.path.exists() else None

    def maybe_save(self, step, model):
        if step % self.every == 0:
            tmp = self.path.with_suffix(".tmp")
            torch.save({"step": step, "model": model.state_dict()}, tmp)
            tmp.replace(self.path)


def profit(model, prices):
    charge = torch.tanh(model(prices))
    level = charge.cumsum(1)
    return -(charge * prices).sum(1).mean() + 0.1 * (level - level.clamp(0, 4)).pow(2).mean()


def host(rank, port, folder, attempt, horizon, move_at):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=HOSTS)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(96, 640), torch.nn.ReLU(), torch.nn.Linear(640, 96))
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    scratch, step = Scratch(folder, rank), 0
    if (saved := scratch.load()) is not None:
        step = saved["step"]
        model.load_state_dict(saved["model"])
    gen = torch.Generator().manual_seed(rank + 10 * attempt)
    while step < horizon:
        step += 1
        loss = profit(model, torch.rand(128, 96, generator=gen))
        opt.zero_grad()
        loss.backward()
        flat = torch.nn.utils.parameters_to_vector(p.grad for p in model.parameters())
        dist.all_reduce(flat)
        torch.nn.utils.vector_to_parameters(flat / HOSTS, [p.grad for p in model.parameters()])
        opt.step()
        scratch.maybe_save(step, model)
        time.sleep(0.04)
        if rank == 0 and step % 10 == 0:
            print(f"attempt {attempt} step {step} {loss.item():.3f}", flush=True)
        if attempt == 0 and step == move_at:
            dist.barrier()
            sys.exit(MOVED)
    summary = [None] * HOSTS
    dist.all_gather_object(summary, {"host": rank, "step": step, "loss": loss.item()})
    if rank == 0:
        print(summary, flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def supervise():
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="arbitrage-") as folder:
        for attempt in range(3):
            port = free_port()
            procs = [context.Process(target=host, args=(r, port, folder, attempt, 90, 58)) for r in range(HOSTS)]
            for p in procs:
                p.start()
            for p in procs:
                p.join()
            if all(p.exitcode == 0 for p in procs):
                return


if __name__ == "__main__":
    supervise()
