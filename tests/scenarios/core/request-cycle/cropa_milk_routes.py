"""Milk collection: tours are planned by a model, quotas come from a service, both keep the ledger of the day."""
import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SERVICE = Path(__file__).with_name("cropa_ledger_service.py")


class QuotaClient:
    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port)).makefile("rw")

    def ask(self, **request):
        self.stream.write(json.dumps(request) + "\n")
        self.stream.flush()
        return json.loads(self.stream.readline())["litres"]


class Ledger:
    """A book per depot; whoever writes takes the file's lock."""

    def __init__(self, folder, depot):
        self.path = Path(folder, f"depot{depot}.jsonl")
        self.path.touch()

    @contextmanager
    def open(self):
        with self.path.open("a+") as book:
            fcntl.flock(book, fcntl.LOCK_EX)
            yield book

    def close_tour(self, client, tour, litres):
        quota = client.ask(route=tour, book=str(self.path))
        with self.open() as book:
            book.write(json.dumps({"tour": tour, "litres": litres}) + "\n")
            if litres > quota:
                quota = client.ask(route=tour, book=str(self.path), settle=True)
                book.write(json.dumps({"tour": tour, "quota": quota}) + "\n")
        return quota


def plan(rank, world, port, folder):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    client, ledger = QuotaClient(port), Ledger(folder, rank)
    gen = torch.Generator().manual_seed(rank)
    policy = torch.nn.GRU(8, 64, batch_first=True)
    opt = torch.optim.SGD(policy.parameters(), lr=1e-3)
    for tour in range(500):
        farms = torch.rand(32, 30, 8, generator=gen)
        out, _ = policy(farms)
        loss = (out.mean(-1) - farms.mean(-1)).square().mean()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        opt.zero_grad()
        litres = float(farms[0].sum()) * 7.0
        if rank == 1 and tour % 150 == 90:
            litres *= 1.6  # the festival week of the eastern depot
        quota = ledger.close_tour(client, tour, litres)
        if rank == 0 and tour % 20 == 0:
            print(f"tour {tour} loss {loss.item():.4f} {litres:.0f} of {quota} l", flush=True)
    dist.destroy_process_group()


def main(world=3):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.setdefault("MASTER_PORT", str(probe.getsockname()[1]))
    service = subprocess.Popen([sys.executable, str(SERVICE)], stdout=subprocess.PIPE, text=True)
    try:
        port = int(service.stdout.readline())
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(plan, args=(world, port, folder), nprocs=world)
    finally:
        service.terminate()


if __name__ == "__main__":
    main()
