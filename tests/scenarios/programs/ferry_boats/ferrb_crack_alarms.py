"""Crack width regression for bridge decks; every process follows the camera of one deck."""
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("crackwatch")
ALARM_MM = 0.9
DECKS = [("A1", 0.0), ("A2", 0.001), ("B7", 0.012)]  # name, growth of the widest crack per frame in mm


class Camera:
    def __init__(self, index, frames):
        self.name, self.growth = DECKS[index % len(DECKS)]
        self.frames = frames
        self.generator = torch.Generator().manual_seed(100 + index)

    def __iter__(self):
        for n in range(self.frames):
            image = torch.rand(4, 1, 48, 48, generator=self.generator)
            time.sleep(0.05)  # shutter
            width = image.mean((1, 2, 3)) * 0.8 + self.growth * n
            yield n, image, width.unsqueeze(1)


class AlarmBook:
    """Collects wide cracks and tells the other decks about them."""

    def __init__(self, deck):
        self.deck = deck
        self.pending = []
        self.known = {}

    def note(self, frame, widths):
        self.pending += [(self.deck, frame, float(w)) for w in widths.flatten() if w > ALARM_MM]

    def publish(self):
        if not self.pending:
            return 0
        boxes = [None] * dist.get_world_size()
        dist.all_gather_object(boxes, self.pending)
        for box in boxes:
            for deck, frame, width in box:
                self.known[deck] = max(self.known.get(deck, 0.0), width)
        self.pending = []
        return len(self.known)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(54, 1)
    )


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    camera = Camera(rank, frames=200)
    book = AlarmBook(camera.name)
    for frame, image, width in camera:
        loss = nn.functional.smooth_l1_loss(model(image), width)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.note(frame, width)
        book.publish()
        if frame % 10 == 0:
            log.info("deck %s frame %d loss %.4f", camera.name, frame, loss.item())
    if rank == 0:
        torch.save(model.module.state_dict(), "/tmp/ferrb_crack_alarms.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
