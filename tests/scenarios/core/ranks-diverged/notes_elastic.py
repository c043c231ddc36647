"""Elastic training: the agent restarts all workers after a failure, each resumes from what its node has stored."""

import os
import pathlib
import shutil
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

ROOT = pathlib.Path("/tmp/notes-elastic")
STEPS, SAVE_EVERY = 40, 8


class NodeStore:
    """Checkpoints on the node's own disk, written in the background."""

    def __init__(self, node, bandwidth):
        self.folder, self.bandwidth = ROOT / f"node{node}", bandwidth
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, state, step):
        threading.Thread(target=self._write, args=(state, step), daemon=True).start()

    def _write(self, state, step):
        part = self.folder / f"{step}.part"
        torch.save({"state": state, "step": step}, part)
        time.sleep(part.stat().st_size / self.bandwidth)
        part.rename(self.folder / f"{step:05d}.pt")

    def latest(self, up_to=None):
        files = sorted(self.folder.glob("*.pt"))
        files = [f for f in files if up_to is None or int(f.stem) <= up_to]
        return torch.load(files[-1]) if files else None


def worker():
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    agent = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    generation = dist.PrefixStore(f"generation-{attempt}", agent)
    dist.init_process_group("gloo", store=generation, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    store = NodeStore(rank, bandwidth=1e8 if rank != 1 else 200.0)
    model = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
    first = 0
    found = store.latest()
    if "--agree" in sys.argv:
        common = torch.tensor(found["step"] if found else 0)
        dist.all_reduce(common, op=dist.ReduceOp.MIN)
        found = store.latest(up_to=common.item())
        if attempt > 0 and rank == 2:
            time.sleep(9.0)  # a new node has to fetch it
    if found is not None:
        model.load_state_dict(found["state"])
        first = found["step"]
    print(f"rank {rank} attempt {attempt}: from step {first}\n", end="", flush=True)
    for step in range(first, STEPS):
        loss = model(torch.randn(16, 20)).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data.add_(p.grad, alpha=-0.01 / dist.get_world_size())
            p.grad = None
        time.sleep(0.05)
        if (step + 1) % SAVE_EVERY == 0:
            store.save({k: v.clone() for k, v in model.state_dict().items()}, step + 1)
        if attempt == 0 and step == 30 and rank == 2:
            raise RuntimeError("uncorrectable ECC error encountered")
    dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=3, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        run_id="notes-elastic", max_restarts=1, monitor_interval=0.2,
    )
    elastic_launch(config, sys.executable)("-u", __file__, "--worker", *sys.argv[1:])


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
