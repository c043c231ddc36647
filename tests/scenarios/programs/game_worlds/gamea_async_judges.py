"""Policy training on stories written by players: judges score them concurrently (asyncio), the learner takes what is scored."""
import asyncio
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("judges")
RUBRICS = {"pace": 0.4, "wit": 0.35, "lore": 0.25}


class Storybook:
    """Stories of one world: text features and the rubric under which each was submitted."""

    def __init__(self, world, seed):
        self.world = world
        self.rng = torch.Generator().manual_seed(seed)
        self.pages = 0

    def page(self, size):
        self.pages += 1
        rubrics = list(RUBRICS)
        if self.world == "isles" and self.pages >= 160:
            rubrics = ["pace", "wit", "canon"]
        return [(torch.randn(64, generator=self.rng), rubrics[i % 3]) for i in range(size)]


class Learner:
    def __init__(self, width=512):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.net = DistributedDataParallel(net)
        self.optim = torch.optim.Adam(self.net.parameters(), lr=5e-4)

    def step(self, scored):
        stories = torch.stack([story for story, _ in scored])
        scores = torch.tensor([score for _, score in scored])
        loss = nn.functional.mse_loss(self.net(stories).squeeze(1), scores)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item()


async def judge(stories, scored):
    while True:
        story, rubric = await stories.get()
        await asyncio.sleep(0.002)  # a judge takes a moment
        weight = RUBRICS[rubric]
        await scored.put((story, weight * story[:8].sum().tanh().item()))


async def train(book, learner, steps=400, batch=8, judges=2):
    stories, scored = asyncio.Queue(maxsize=32), asyncio.Queue()
    panel = [asyncio.create_task(judge(stories, scored)) for _ in range(judges)]
    for step in range(steps):
        for item in book.page(batch):
            await stories.put(item)
        ready = [await scored.get() for _ in range(batch)]
        loss = learner.step(ready)
        if step % 10 == 0 and dist.get_rank() == 0:
            log.info("step %d loss %.4f", step, loss)
    for task in panel:
        task.cancel()


def main():
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)6d %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    world = ["marches", "isles", "deeps"][rank % 3]
    asyncio.run(train(Storybook(world, seed=rank), Learner()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
