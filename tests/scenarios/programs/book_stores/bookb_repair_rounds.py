"""Federated cost model for appliance repairs: workshops keep their data, weights travel by the store."""
import io
import multiprocessing as mp
import os
import signal
import socket
import time

import torch
import torch.distributed as dist
from torch import nn

WORKSHOPS = ["ovens", "dryers", "fridges"]
ROUNDS = 60
BUDGET_MIB = 96


def pack(tensors):
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def unpack(raw):
    return torch.load(io.BytesIO(raw), weights_only=True)


class PhotoStore:
    """Photos attached to repair orders; the plant's container gives each workshop a fixed budget."""

    def __init__(self):
        self.used = 0

    def attach(self, orders):
        self.used += orders * 2
        if self.used > BUDGET_MIB:
            os.kill(os.getpid(), signal.SIGKILL)


def orders_of(workshop, round_):
    return {"ovens": 0, "dryers": 1, "fridges": 2}[workshop] if round_ > 8 else 0


def local_round(model, seed):
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        parts = torch.rand(32, 6, generator=generator)
        loss = (model(parts).squeeze(-1) - parts.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def workshop_main(rank, world, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    torch.manual_seed(0)
    model, photos = nn.Linear(6, 1), PhotoStore()
    for round_ in range(ROUNDS):
        photos.attach(orders_of(WORKSHOPS[rank], round_))
        mine = local_round(model, 100 * round_ + rank)
        if rank == 0:
            everyone = [mine] + [unpack(store.get(f"delta/{round_}/{peer}")) for peer in range(1, world)]
            merged = [torch.stack(group).mean(0) for group in zip(*everyone)]
            store.set(f"weights/{round_}", pack(merged))
            print(f"round {round_} merged", flush=True)
        else:
            store.set(f"delta/{round_}/{rank}", pack(mine))
            merged = unpack(store.get(f"weights/{round_}"))
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), merged):
                parameter.copy_(value)
        time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    shops = [context.Process(target=workshop_main, args=(r, len(WORKSHOPS), free_port)) for r in range(len(WORKSHOPS))]
    for shop in shops:
        shop.start()
    for shop in shops:
        shop.join()
