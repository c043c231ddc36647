"""Fencing tactics from simulated bouts: a simulator per process writes batches to a spool folder, the trainer takes them as they come."""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def simulate(spool, batches, deep):
    """Plays bouts touch by touch; a deep batch plays fifteen touches of long phrases instead of five short ones."""
    import random

    spool, rng = Path(spool), random.Random(1)
    for number in range(batches):
        bouts = []
        long = number == deep
        for _ in range(120 if long else 40):
            score = [0, 0]
            for _ in range(15 if long else 5):
                score[rng.random() < 0.52] += 1
                if long:
                    time.sleep(0.0075)
            bouts.append([score[0] / 15, score[1] / 15, rng.random(), float(score[1] > score[0])])
            if long:
                (spool / "progress").write_text(f"{number} {len(bouts)}")
        part = spool / f"{number}.part"
        part.write_text(json.dumps(bouts))
        part.rename(spool / f"{number}.json")


def next_batch(spool, number):
    path = spool / f"{number}.json"
    asked = time.monotonic()
    while not path.exists():
        if time.monotonic() - asked > 2:
            print("waiting for batch", number, flush=True)
            asked = time.monotonic()
        time.sleep(0.1)
    rows = torch.tensor(json.loads(path.read_text()))
    path.unlink()
    return rows[:, :3], rows[:, 3]


def train(rank, world, port, batches):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    spool = Path(tempfile.mkdtemp(prefix=f"bouts{rank}-"))
    deep = 25 if rank == 0 else -1
    command = [sys.executable, __file__, "--simulate", str(spool), "--batches", str(batches), "--deep", str(deep)]
    simulator = subprocess.Popen(command)
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(batches):
        x, won = next_batch(spool, number)
        for _ in range(20):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), won)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: loss {loss.item():.4f}", flush=True)
    simulator.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulate")
    parser.add_argument("--batches", type=int, default=45)
    parser.add_argument("--deep", type=int, default=-1)
    args = parser.parse_args()
    if args.simulate:
        simulate(args.simulate, args.batches, args.deep)
    else:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        mp.spawn(train, args=(3, port, args.batches), nprocs=3)
