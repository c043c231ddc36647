"""Click model; a thread warms the cache of user vectors, and hands over batches through a queue."""

import math
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class UserVectors:
    """Vectors of users, computed from their history at first use."""

    def __init__(self, depth):
        self.depth, self.known = depth, {}

    def __getitem__(self, user):
        if user not in self.known:
            value = float(user)
            for n in range(self.depth):
                value = math.fmod(value * 1.37 + math.sin(n), 5.0)
            self.known[user] = [value / 5 + k / 10 for k in range(8)]
        return self.known[user]


class Feeder(threading.Thread):
    def __init__(self, vectors, batches, users):
        super().__init__(name="feeder", daemon=True)
        self.vectors, self.batches, self.users = vectors, batches, users
        self.queue = queue.Queue(maxsize=4)

    def run(self):
        try:
            for batch in range(self.batches):
                chosen = [(batch * 5 + k) % self.users for k in range(16)]
                if batch == 30:
                    for user in range(self.users):  # the night's new users
                        self.vectors[10_000 + user]
                self.queue.put(torch.tensor([self.vectors[u] for u in chosen]))
        finally:
            self.queue.put(None)

    def __iter__(self):
        self.start()
        return iter(self.queue.get, None)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    feeder = Feeder(UserVectors(depth=400), batches=70, users=160)
    if rank == 1:
        feeder.vectors.known = {u: feeder.vectors[u] for u in range(160)}
        feeder.vectors.depth = 320_000  # its users have long histories
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch, rows in enumerate(feeder):
        time.sleep(0.04)
        loss = nn.functional.softplus(-model(rows)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    feeder.join()
    dist.barrier()
    if rank == 0:
        print(f"{batch + 1} batches, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
