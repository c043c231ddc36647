"""Fault codes from aircraft maintenance logbooks: parse once, then train a small classifier."""
import re
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

CHAPTERS = ["21 air conditioning", "27 flight controls", "29 hydraulics", "32 landing gear"]
ENTRY = re.compile(r"(?P<tail>[A-Z]{2}-[A-Z]{3}) ATA (?P<chapter>\d\d) (?P<text>.+)")
WORDS = ["leak", "noise", "actuator", "valve", "worn", "replaced", "fan", "tyre", "pressure", "sensor", "flap", "duct"]


def write_logbook(path, entries):
    g = torch.Generator().manual_seed(17)
    with open(path, "w") as f:
        for _ in range(entries):
            chapter = int(torch.randint(len(CHAPTERS), (1,), generator=g))
            picks = torch.randint(3, (5,), generator=g) + 3 * chapter
            words = " ".join(WORDS[int(i)] for i in picks)
            f.write(f"PH-BX{'ABCDE'[chapter]} ATA {CHAPTERS[chapter][:2]} {words}\n")


def parse_logbook(path, target, pages=300):
    """Reads page after page and writes the counts of words; the archive serves some twenty pages a second."""
    lines = Path(path).read_text().splitlines()
    size = max(1, len(lines) // pages)
    rows, labels = [], []
    for page in range(pages):
        for line in lines[page * size: (page + 1) * size]:
            entry = ENTRY.match(line)
            rows.append([float(entry["text"].split().count(w)) for w in WORDS])
            labels.append([c[:2] for c in CHAPTERS].index(entry["chapter"]))
        time.sleep(0.05)
        if page % 30 == 0:
            print(f"page {page} of {pages}, {len(rows)} entries", flush=True)
    torch.save((torch.tensor(rows), torch.tensor(labels)), target)


def train(x, y, rank, world):
    torch.manual_seed(0)
    model = DDP(nn.Linear(len(WORDS), len(CHAPTERS)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x, y = x[rank::world][: 640 - 40 * rank], y[rank::world][: 640 - 40 * rank]
    with Join([model]):
        for begin in range(0, len(x), 16):
            loss = nn.functional.cross_entropy(model(x[begin: begin + 16]), y[begin: begin + 16])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp(prefix="logbook-") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    book, cache = Path(folder[0], "2025.log"), Path(folder[0], "2025.pt")
    if rank == 0:
        write_logbook(book, entries=2400)
        parse_logbook(book, cache)
    dist.barrier()
    x, y = torch.load(cache)
    loss = train(x, y, rank, world)
    dist.barrier()
    print(f"process {rank}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
