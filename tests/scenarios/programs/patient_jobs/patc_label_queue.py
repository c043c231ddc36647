"""Active learning on support mails. Annotators put their labels into a queue served beside rank 1; rank 0 collects one round of them."""
import random
import time
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from queue import Queue

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

KEY = b"labels"


class LabelServer(BaseManager):
    pass


class LabelClient(BaseManager):
    pass


LABELS = Queue()
LabelServer.register("labels", callable=lambda: LABELS)
LabelClient.register("labels")


def annotate(address, mails, seed):
    """A person, who reads a mail and clicks a label."""
    client = LabelClient(address=address, authkey=KEY)
    client.connect()
    labels, person = client.labels(), random.Random(seed)
    for mail in mails:
        time.sleep(person.uniform(0.5, 0.9))
        labels.put((mail, person.randrange(3)))
    labels.put(None)


def collect(address):
    client = LabelClient(address=address, authkey=KEY)
    client.connect()
    return dict(iter(client.labels().get, None))


def fit(model, optimizer, labelled, steps):
    for _ in range(steps):
        picks = random.sample(sorted(labelled), 8)
        x = torch.stack([torch.full((30,), float(p) / 30) + torch.randn(30) for p in picks])
        y = torch.tensor([labelled[p] for p in picks])
        time.sleep(0.04)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    context = get_context("fork")
    server, address = None, [None]
    if rank == 1:
        server = LabelServer(address=("127.0.0.1", 0), authkey=KEY, ctx=context)
        server.start()
        address = [server.address]
    dist.broadcast_object_list(address, src=1)
    model = DDP(nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    fit(model, optimizer, {n: n % 3 for n in range(20)}, 70)
    if rank == 1:
        person = context.Process(target=annotate, args=(address[0], range(20), 5), daemon=True)
        person.start()
    round_two = [collect(address[0]) if rank == 0 else None]
    dist.broadcast_object_list(round_two, src=0)
    loss = fit(model, optimizer, round_two[0], 80)
    print(f"[{rank}] {len(round_two[0])} new labels, loss {loss:.3f}")
    dist.barrier()
    if rank == 1:
        person.join()
        server.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
