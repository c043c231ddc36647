"""Active learning on peptides: a controller splits each batch of measured candidates over a pool of scoring workers."""

import multiprocessing
import socket
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
ALPHABET, LENGTH = 20, 9


class ScoringWorker:
    """Lives in a process of its own, and does what it is told over a pipe."""

    def __init__(self, pipe, rank, world, port):
        self.pipe = pipe
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Embedding(ALPHABET, 6), nn.Flatten(), nn.Linear(6 * LENGTH, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

    def learn(self, peptides, affinities):
        loss = (self.model(torch.from_numpy(peptides)).squeeze(1) - torch.from_numpy(affinities)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        self.optimizer.step()
        time.sleep(0.02)
        return loss.item()

    def score(self, peptides):
        with torch.no_grad():
            return self.model(torch.from_numpy(peptides)).squeeze(1).numpy()

    def serve(self):
        while True:
            method, arguments = self.pipe.recv()
            self.pipe.send(getattr(self, method)(*arguments))


def worker_main(*arguments):
    ScoringWorker(*arguments).serve()


class Pool:
    def __init__(self, size):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self.ends = []
        for rank in range(size):
            end, other = context.Pipe()
            context.Process(target=worker_main, args=(other, rank, size, port), daemon=True).start()
            self.ends.append(end)

    def learn(self, peptides, affinities):
        parts = zip(peptides.chunk(len(self.ends)), affinities.chunk(len(self.ends)))
        called = []
        for end, (some_peptides, some_affinities) in zip(self.ends, parts):
            end.send(("learn", (some_peptides.numpy(), some_affinities.numpy())))
            called.append(end)
        losses = [end.recv() for end in called]
        return sum(losses) / len(losses)

    def score(self, peptides):
        self.ends[0].send(("score", (peptides.numpy(),)))
        return torch.from_numpy(self.ends[0].recv())


def measure(peptides):
    """Stands for the laboratory."""
    return torch.sin(peptides.float()).mean(1) + 0.2 * (peptides[:, 1] == 3)


def main():
    torch.manual_seed(11)
    pool = Pool(3)
    measured = torch.randint(0, ALPHABET, (12 * 45 + 4, LENGTH))
    for cycle in range(20):
        affinities = measure(measured)
        for number, (x, y) in enumerate(zip(measured.split(12), affinities.split(12))):
            loss = pool.learn(x, y)
            if number % 15 == 0:
                print(f"cycle {cycle} batch {number} loss {loss:.4f}", flush=True)
        proposals = torch.randint(0, ALPHABET, (200, LENGTH))
        best = pool.score(proposals).topk(12).indices
        measured = torch.cat([measured, proposals[best]])


if __name__ == "__main__":
    main()
