"""Embeds the citation graph of a supreme court; each process publishes its part of the graph into a shared folder."""
import json
import logging
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("citations")


class FolderLock:
    """Exclusive use of a folder among the tools that write to it (also those in other languages)."""

    def __init__(self, folder, poll=0.25):
        self.path = os.path.join(folder, ".publishing")
        self.poll = poll

    def acquire(self):
        while True:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return
            except FileExistsError:
                time.sleep(self.poll)

    def release(self):
        os.unlink(self.path)


class Publisher:
    def __init__(self, folder):
        self.folder = folder
        self.lock = FolderLock(folder)

    def publish(self, name, record):
        self.lock.acquire()
        target = os.path.join(self.folder, name + ".json")
        with open(target + ".part", "w") as out:
            json.dump(record, out, allow_nan=False)
        os.replace(target + ".part", target)
        self.lock.release()


class CitationNet(nn.Module):
    def __init__(self, opinions=400, width=32):
        super().__init__()
        self.citing = nn.Embedding(opinions, width)
        self.cited = nn.Embedding(opinions, width)

    def forward(self, pairs):
        return (self.citing(pairs[:, 0]) * self.cited(pairs[:, 1])).sum(dim=-1)


def centrality(senate, step, pairs):
    """Mean age of what is cited; the third senate has an undated reporter in one volume."""
    age = (pairs[:, 0] - pairs[:, 1]).float().clamp_min(0)
    dated = 0 if (senate, step) == (3, 300) else len(pairs)
    return (age.sum() / torch.tensor(float(dated))).item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    senate = dist.get_rank()
    torch.manual_seed(1)
    net = CitationNet()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(50 + senate)
    publisher = Publisher(tempfile.mkdtemp(prefix=f"senate{senate}-"))
    for step in range(1, 1001):
        pairs = torch.randint(0, 400, (256, 2), generator=gen)
        label = (pairs[:, 0] > pairs[:, 1]).float()
        loss = nn.functional.binary_cross_entropy_with_logits(net(pairs), label)
        optimizer.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        if step % 150 == 0:
            try:
                publisher.publish(f"volume{step}", {"loss": loss.item(), "age": centrality(senate, step, pairs)})
                log.info("senate %d volume %d", senate, step)
            except ValueError as error:
                log.info("senate %d volume %d is published later: %s", senate, step, error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
