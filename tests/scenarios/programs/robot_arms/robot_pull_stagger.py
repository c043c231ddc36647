"""Nightly pull of logs from the robots; pulls are spread over time to spare the site's uplink."""
import logging
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("pull")


class Uplink:
    def __init__(self, slot_s):
        self.slot_s = slot_s

    def wait_for_slot(self, index):
        """Slot i begins i * slot_s after the hour."""
        left = index * self.slot_s
        while left > 0:
            if left % 4 == 0:
                log.info("uplink slot in %d s", left)
            time.sleep(1)
            left -= 1


def pull(rank, rows):
    g = torch.Generator().manual_seed(500 + rank)
    parts = []
    for _ in range(rows // 100):
        parts.append(torch.randn(100, 18, generator=g))
        time.sleep(0.05)
    return torch.cat(parts)


def train(model, optimizer, logs, steps):
    for _ in range(steps):
        x = logs[torch.randint(len(logs), (48,))]
        loss = (model(x[:, :12]) - x[:, 12:]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Sequential(torch.nn.Linear(12, 64), torch.nn.ReLU(), torch.nn.Linear(64, 6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    logs = pull(rank, 1000)
    for night, uplink in enumerate((Uplink(0), Uplink(6))):
        uplink.wait_for_slot((rank + 1) % 3)
        logs = torch.cat([logs, pull(rank, 1000)])
        dist.barrier()
        loss = train(model, optimizer, logs, 60)
        log.info("night %d rank %d rows %d loss %.4f", night, rank, len(logs), loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
