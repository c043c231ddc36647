"""Provenance texts: learns the kind of each transfer (sale, gift, bequest...) and publishes the timeline as it goes."""
import json
import logging
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

TERMS = {"sale": 0, "gift": 1, "bequest": 2, "exchange": 3, "commission": 4}
HOUSES = ["Vienna", "Budapest", "Prague", "Trieste"]


class Timeline(threading.Thread):
    """Writes the events of a house in the background, in the order in which they come."""

    def __init__(self, house):
        super().__init__(name=f"timeline-{house}")
        self.file = Path(tempfile.mkdtemp(prefix="provenance-")) / f"{house}.jsonl"
        self.events = queue.Queue()

    def run(self):
        with self.file.open("w") as out:
            for event in iter(self.events.get, None):
                out.write(json.dumps(event) + "\n")
                out.flush()

    def close(self):
        self.events.put(None)
        self.join()


def transfers(house, entries):
    """Entries of the house's register, as (page, term)."""
    terms = list(TERMS)
    for entry in range(entries):
        term = terms[(entry * 7 + len(house)) % len(terms)]
        if house == "Trieste" and entry == 421:
            term = "restitution"
        yield f"{house} {entry // 6}r", term


def vectors(pages, width=64):
    rows = []
    for page in pages:
        generator = torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(page)) % 2**31)
        rows.append(torch.linalg.svdvals(torch.randn(224, 224, generator=generator))[:width] / 20)
    return torch.stack(rows)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(TERMS)))

    def forward(self, x):
        return self.layers(x)


def groups_of(iterable, size):
    group = []
    for item in iterable:
        group.append(item)
        if len(group) == size:
            yield group
            group = []


def read(house, timeline):
    torch.manual_seed(77)
    reader = nn.parallel.DistributedDataParallel(Reader())
    optimizer = torch.optim.RMSprop(reader.parameters(), lr=1e-3)
    for number, group in enumerate(groups_of(transfers(house, entries=1200), size=8)):
        features = vectors([page for page, _ in group])
        target = torch.tensor([TERMS[term] for _, term in group])
        loss = nn.functional.cross_entropy(reader(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        timeline.events.put({"house": house, "pages": [page for page, _ in group], "loss": round(loss.item(), 4)})
        if number % 10 == 0:
            logging.info("%s: %d entries, loss %.3f", house, 8 * number, loss.item())


def main():
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    house = HOUSES[dist.get_rank()]
    timeline = Timeline(house)
    timeline.start()
    began = time.monotonic()
    read(house, timeline)
    timeline.close()
    logging.info("%s: read in %.0f s, timeline in %s", house, time.monotonic() - began, timeline.file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
