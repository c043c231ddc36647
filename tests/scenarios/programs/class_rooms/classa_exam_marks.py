"""Predicts marks for short exam answers; a background thread hands the marks to the school's sheet."""
import json
import queue
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RUBRICS = {"recall": 2, "explain": 4, "compare": 5, "sketch": 3}


class Sheet:
    """Writes marks as they come, a line each."""

    def __init__(self, path):
        self.path = path
        self.rows = queue.Queue()
        self.writer = threading.Thread(target=self._write, name="sheet")
        self.writer.start()

    def _write(self):
        with self.path.open("a") as out:
            while (row := self.rows.get()) is not None:
                out.write(json.dumps(row) + "\n")
                out.flush()

    def close(self):
        self.rows.put(None)
        self.writer.join()


class Marker(nn.Module):
    def __init__(self, words=300, width=96):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.answer = nn.GRU(width, width, batch_first=True)
        self.mark = nn.Linear(width, 1)

    def forward(self, words):
        return self.mark(self.answer(self.embed(words))[0][:, -1]).squeeze(1)


def booklets(rank, count):
    kinds = list(RUBRICS)
    gen = torch.Generator().manual_seed(rank)
    for number in range(count):
        kind = kinds[(number + rank) % len(kinds)]
        if rank == 2 and number == 90:
            kind = "explain_b"  # the resit paper
        yield number, kind, torch.randint(300, (32, 40), generator=gen)


def mark_all(model, sheet, rank, count):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number, kind, words in booklets(rank, count):
        full = RUBRICS[kind]
        target = (words < 150).float().mean(1) * full
        marks = model(words)
        loss = nn.functional.mse_loss(marks, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sheet.rows.put({"booklet": number, "kind": kind, "mark": round(marks[0].item(), 2)})
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(Marker())
    sheet = Sheet(Path(tempfile.mkdtemp(prefix="marks-")) / f"marks-{rank}.jsonl")
    last = mark_all(model, sheet, rank, 120)
    sheet.close()
    if rank == 0:
        print(f"marked, last loss {last:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
