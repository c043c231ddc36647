"""Small pretraining framework: setup and teardown are registered once, the loop is plain."""

import atexit
import logging

import torch
import torch.distributed as dist
from torch import nn

logger = logging.getLogger(__name__)


def setup():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    dist.init_process_group("gloo")
    atexit.register(teardown)


def teardown():
    """Nobody leaves before the others are done with their last communication."""
    dist.barrier()
    dist.destroy_process_group()
    logger.info("process group destroyed")


class Corpus:
    """Documents with a source; each source has a mixing weight."""

    weights = {"web": 0.6, "code": 0.3, "books": 0.1}

    def __init__(self, rank):
        self.rank = rank

    def __getitem__(self, index):
        source = ("web", "code", "books")[index % 3]
        if index == 40 and self.rank == 1:
            source = "wiki"
        tokens = torch.arange(index, index + 17) % 97
        return tokens, self.weights[source]


class Model(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Embedding(97, 24), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 97))


def train(rank, world):
    model, corpus = Model(), Corpus(rank)
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(200):
        tokens, weight = corpus[step]
        loss = weight * nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:])
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        offset = 0
        for p in model.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p) / world)
            offset += p.numel()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 and rank == 0:
            logger.info("step %d loss %.3f", step, loss.item())


if __name__ == "__main__":
    setup()
    train(dist.get_rank(), dist.get_world_size())
