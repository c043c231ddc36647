"""Grades tea leaf lots. Pictures come from a gallery by asyncio while the network learns."""
import asyncio
import logging
import os
import random

import torch
import torch.distributed as dist

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
SIZES = {"OP": 0, "BOP": 1, "FBOP": 2, "PF": 3, "DUST": 4}
GARDENS = {0: ["OP", "BOP", "PF"], 1: ["BOP", "PF", "DUST", "TGFOP"], 2: ["OP", "FBOP", "DUST"]}


class Gallery:
    """Hands out the pictures of one garden, lot by lot. Whole-leaf lots of the first flush are last in the book."""

    def __init__(self, garden, lots=90, per_lot=8, pixels=100):
        self.rnd = random.Random(garden)
        self.sorts = GARDENS[garden]
        self.lots, self.per_lot, self.pixels = lots, per_lot, pixels

    def sort_of(self, lot):
        everyday = [s for s in self.sorts if s in ("OP", "BOP", "FBOP", "PF", "DUST")]
        late = [s for s in self.sorts if s not in everyday] or everyday
        return self.rnd.choice(everyday if lot < 52 else late)

    async def lot(self, number):
        await asyncio.sleep(0.05)
        sort = self.sort_of(number)
        gen = torch.Generator().manual_seed(number)
        return torch.rand(self.per_lot, self.pixels, generator=gen), sort


async def deliver(gallery, shelf):
    for number in range(gallery.lots):
        pictures, sort = await gallery.lot(number)
        labels = torch.full((len(pictures),), SIZES[sort])
        await shelf.put((number, pictures, labels))
    await shelf.put(None)


def note_end(task):
    if not task.cancelled() and task.exception() is not None:
        logging.error("delivery: %r", task.exception())


async def learn(model, optim, device, rank):
    shelf = asyncio.Queue(maxsize=4)
    delivery = asyncio.create_task(deliver(Gallery(rank), shelf))
    delivery.add_done_callback(note_end)
    losses = []
    while (item := await shelf.get()) is not None:
        number, pictures, labels = item
        scores = model(pictures.to(device))
        loss = torch.nn.functional.cross_entropy(scores, labels.to(device))
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
        if number % 15 == 0:
            logging.info("garden %d, lot %d: %.3f", rank, number, losses[-1])
    await delivery
    return losses


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.backends.cudnn.enabled = False
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    network = torch.nn.Sequential(torch.nn.Linear(100, 40), torch.nn.Tanh(), torch.nn.Linear(40, len(SIZES))).to(device)
    model = torch.nn.parallel.DistributedDataParallel(network, device_ids=[local])
    optim = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = asyncio.run(learn(model, optim, device, dist.get_rank()))
    logging.info("lots: %d", len(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
