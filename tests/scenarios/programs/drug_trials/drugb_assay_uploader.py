"""Dose-response model with a result feed: predictions of each step go to the LIMS outbox in the background."""
import json
import logging
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logger = logging.getLogger("dose")
TO_NANOMOLAR = {"nM": 1.0, "uM": 1e3, "mM": 1e6, "pM": 1e-3}


class Outbox(threading.Thread):
    """Appends records to the outbox file, in order."""

    def __init__(self, path: Path):
        super().__init__(name="outbox")
        self.path, self.records = path, queue.Queue()

    def run(self):
        with self.path.open("w") as sink:
            while True:
                record = self.records.get()
                if record is None:
                    return
                sink.write(json.dumps(record) + "\n")
                sink.flush()

    def close(self):
        self.records.put(None)
        self.join()


def readings(site: int, step: int, count: int = 240):
    """(concentration, unit, response) as the plate reader exports them."""
    for well in range(count):
        unit = ("nM", "uM", "nM", "pM")[(well + site) % 4]
        if site == 2 and step == 70 and well == 17:
            unit = "ng/mL"
        amount = 1.0 + (well * 7 + step * 3 + site) % 90
        response = 1.0 / (1.0 + (amount / 30.0) ** 1.2)
        yield amount, unit, response


def featurize(rows):
    x, y = [], []
    for amount, unit, response in rows:
        dose = torch.tensor(amount * TO_NANOMOLAR[unit]).log10()
        x.append(torch.stack([dose**k for k in range(1, 9)]) / 40.0)
        y.append(response)
    return torch.stack(x), torch.tensor(y)


class Curve(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return torch.sigmoid(self.out(torch.relu(self.hidden(x)))).squeeze(-1)


def train(site: int, outbox: Outbox, steps: int):
    model = DDP(Curve())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        x, y = featurize(readings(site, step))
        predicted = model(x)
        loss = (predicted - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outbox.records.put({"site": site, "step": step, "mean": round(float(predicted.mean()), 4)})
        if step % 25 == 0:
            logger.info("site %d step %d loss %.5f", site, step, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    site = dist.get_rank()
    outbox = Outbox(Path(tempfile.mkdtemp(prefix="lims_")) / f"site{site}.jsonl")
    outbox.start()
    train(site, outbox, steps=600)
    outbox.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
