"""Language model for appellate briefs on borrowed nodes; a state is written before a node's lease ends."""
import os
import signal
import socket
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

# seconds of the lease that are left for training, by the partition of the node
LEASES = {"chancery": 5400.0, "assizes": 4.0}
NODES = ["chancery", "chancery", "assizes", "chancery"]

config = SimpleNamespace(vocab=180, width=40, length=32, batch=12, steps=100_000, folder="briefs")


class Lease:
    """Remembers that the scheduler has announced the end of this node's lease."""

    def __init__(self, partition):
        self.partition = partition
        self.ending = False
        signal.signal(signal.SIGALRM, self._announce)
        signal.setitimer(signal.ITIMER_REAL, LEASES[partition])

    def _announce(self, signum, frame):
        self.ending = True

    def renew(self):
        self.ending = False
        signal.setitimer(signal.ITIMER_REAL, LEASES[self.partition])


class BriefModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.width)
        self.cell = nn.LSTM(config.width, config.width, batch_first=True)
        self.out = nn.Linear(config.width, config.vocab)

    def forward(self, ids):
        return self.out(self.cell(self.embed(ids))[0])


def synchronise(parameters):
    for p in parameters:
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(dist.get_world_size())


def write_state(model, optimizer, step):
    dist.barrier()
    draws = [None] * dist.get_world_size()
    dist.all_gather_object(draws, torch.get_rng_state()[:8].tolist())
    if dist.get_rank() == 0:
        os.makedirs(config.folder, exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "draws": draws, "step": step},
                   os.path.join(config.folder, "state.pt"))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = BriefModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    gen = torch.Generator().manual_seed(rank)
    lease = Lease(NODES[rank])
    print(f"{socket.gethostname()} rank {rank} in {lease.partition}", flush=True)
    began = time.time()
    for step in range(config.steps):
        ids = torch.randint(0, config.vocab, (config.batch, config.length + 1), generator=gen)
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        synchronise(model.parameters())
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f} after {time.time() - began:.1f} s", flush=True)
        if lease.ending or step % 20_000 == 19_999:
            write_state(model, optimizer, step)
            lease.renew()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
