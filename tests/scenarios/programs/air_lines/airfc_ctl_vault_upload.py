"""Gate-conflict classifier; checkpoints go to the vault in parts over the apron's slow link."""
import io
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2
PART = 16 * 1024


class Vault(threading.Thread):
    """Takes parts and acknowledges each when it is stored; the link carries about 10 parts a second."""

    def __init__(self):
        super().__init__(daemon=True, name="vault")
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.stored = self.socket.getsockname()[1], 0

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            with connection, connection.makefile("rb") as incoming:
                while head := incoming.readline():
                    size = int(head)
                    self.stored += len(incoming.read(size))
                    time.sleep(0.1)
                    connection.sendall(b"ok\n")


def upload(port, state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rb") as answers:
        for start in range(0, len(content), PART):
            part = content[start : start + PART]
            link.sendall(f"{len(part)}\n".encode() + part)
            if answers.readline() != b"ok\n":
                raise ConnectionError("part was refused")
    return len(content)


def worker(rank, master_port, vault_port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{master_port}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(60, 1024), nn.ReLU(), nn.Linear(1024, 480), nn.ReLU(), nn.Linear(480, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rng = torch.Generator().manual_seed(rank)
    for step in range(80):
        x = torch.randn(24, 60, generator=rng)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if step == 45:
            if rank == 0:
                print(f"uploaded {upload(vault_port, model.module.state_dict())} bytes", flush=True)
            dist.barrier()
    print(f"worker {rank}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    vault = Vault()
    vault.start()
    mp.spawn(worker, args=(free_port(), vault.port), nprocs=WORLD)
    print(f"vault holds {vault.stored} bytes", flush=True)
