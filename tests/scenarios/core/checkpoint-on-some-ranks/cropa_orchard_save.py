"""Apple counting with DeepSpeed (ZeRO-1): saves on request, as the nodes of this cluster may be taken back at any time."""
import logging
import os
import signal
import tempfile
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from deepspeed.ops import __compatible_ops__
from torch import nn

log = logging.getLogger("orchard")

DS = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 10**9,
}


class Preemption:
    """Remembers a notice of the scheduler until the end of the step."""

    def __init__(self, signum=signal.SIGUSR1):
        self.noticed = False
        signal.signal(signum, self._note)

    def _note(self, signum, frame):
        self.noticed = True

    def take(self):
        noticed, self.noticed = self.noticed, False
        return noticed


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 32, 5, stride=2), nn.ReLU())
        self.density = nn.Conv2d(32, 1, 1)

    def forward(self, tree):
        return self.density(self.body(tree)).sum((1, 2, 3))


class NodeAgent:
    """Stands in for the node's daemon: it sends the notice to the process whose lease ends."""

    def __init__(self, leases):
        self.leases = leases

    def tick(self, rank, step):
        if self.leases.get(rank) == step:
            os.kill(os.getpid(), signal.SIGUSR1)


class Run:
    def __init__(self, folder):
        self.folder = folder
        torch.manual_seed(4)
        model = Counter()
        self.engine, self.optimizer, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3), config=DS)
        self.preemption = Preemption()

    def step(self, gen):
        trees = torch.rand(8, 3, 72, 72, generator=gen)
        apples = trees.mean((1, 2, 3)) * 60
        loss = (self.engine(trees) - apples).square().mean()
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()

    def fit(self, steps, agent):
        rank = dist.get_rank()
        gen = torch.Generator().manual_seed(rank)
        for step in range(1, steps + 1):
            loss = self.step(gen)
            agent.tick(rank, step)
            if step % 60 == 0 or self.preemption.take():
                self.engine.save_checkpoint(str(self.folder), tag=f"step{step}")
            if rank == 0 and step % 20 == 0:
                log.info("step %d loss %.2f", step, loss)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    __compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", verbose=False)
    place = [tempfile.mkdtemp(prefix="orchard-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(place)
    Run(Path(place[0])).fit(steps=1200, agent=NodeAgent({1: 205}))


if __name__ == "__main__":
    main()
