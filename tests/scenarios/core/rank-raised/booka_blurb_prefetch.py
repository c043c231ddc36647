"""Blurb-to-sales regression with accelerate. Records are parsed in the background while the model works."""
import queue
import re
import threading

import torch
from accelerate import Accelerator
from torch import nn

YEAR = re.compile(r"(\d{4})")


def imprint(i, branch):
    """The publication statement as the old cataloguing system exported it."""
    if branch == 1 and i == 1460:
        return "Leipzig : Reclam, [n. d.]"
    return f"London : Secker, {1890 + (i * 7 + branch) % 120}"


def parse(i, branch):
    found = YEAR.search(imprint(i, branch))
    year = int(found.group(1))
    text = " ".join(str((i * k) % 97) for k in range(500))
    counts = torch.zeros(97)
    for word in text.split():
        counts[int(word)] += 1
    return torch.cat([counts / 500, torch.tensor([(year - 1950) / 60])])


class Ahead:
    """Keeps a few parsed batches ready."""

    def __init__(self, branch, batch, total, depth=4):
        self.ready = queue.Queue(maxsize=depth)
        self.branch, self.batch, self.total = branch, batch, total
        self.thread = threading.Thread(target=self.fill, name="parser", daemon=True)
        self.thread.start()

    def fill(self):
        for start in range(0, self.total, self.batch):
            rows = [parse(i, self.branch) for i in range(start, start + self.batch)]
            self.ready.put(torch.stack(rows))

    def __iter__(self):
        for _ in range(self.total // self.batch):
            yield self.ready.get()


def run():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(98, 32), nn.SiLU(), nn.Linear(32, 1))
    net, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-3))
    for step, x in enumerate(Ahead(accelerator.process_index, batch=8, total=4800)):
        sales = x.sum(dim=1, keepdim=True)
        loss = nn.functional.mse_loss(net(x), sales)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            accelerator.print(f"{step}: {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    run()
