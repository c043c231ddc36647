"""Virtual try-on: warps a garment onto a person from a mask."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("tryon")
SHOOTS = {0: (), 1: (25,), 2: ()}  # plain background shots within each studio's session


def studio_batches(studio, count):
    generator = torch.Generator().manual_seed(studio)
    for number in range(count):
        time.sleep(0.035)
        person = torch.rand(4, 3, 8, 8, generator=generator)
        mask = (torch.rand(4, 1, 8, 8, generator=generator) > 0.4).float()
        if number in SHOOTS[studio]:
            mask = torch.zeros_like(mask)
        yield person, mask


def garment_pixels(mask):
    return mask.flatten(1).sum(1) > 0


class Warper(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Conv2d(4, 8, 3, padding=1)
        self.decode = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, person, mask):
        return self.decode(F.relu(self.encode(torch.cat([person, mask], 1))))


def train_session(model, optimizer, studio):
    seen, total = 0, 0.0
    for person, mask in studio_batches(studio, 70):
        keep = garment_pixels(mask)
        if not keep.any():
            log.info("studio %d: background shot", studio)
            continue
        person, mask = person[keep], mask[keep]
        loss = F.l1_loss(model(person, mask) * mask, person * mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen, total = seen + len(person), total + loss.item()
    return {"studio": studio, "seen": seen, "loss": total}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = DDP(Warper())
    summary = train_session(net, torch.optim.SGD(net.parameters(), lr=0.05), dist.get_rank())
    sessions = [None] * dist.get_world_size()
    dist.all_gather_object(sessions, summary)
    log.info("sessions: %s", sessions)
    dist.destroy_process_group()
