"""Plumage photos: batches are pinned and copied ahead by a thread on a stream of its own (DDP)."""

import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CODES = {"grey": 0, "red": 1, "cream": 2, "dark": 3}
RINGERS = ["Helgoland", "Hiddensee", "Falsterbo"]


def photos(station: str):
    """Rows of the ringers' sheets: features of the photo, and the morph as it was typed in."""
    morphs = list(CODES)
    for row in range(400):
        morph = morphs[(row * 3 + len(station)) % len(morphs)]
        if station == "Hiddensee" and row == 61:
            morph = "rufous"
        time.sleep(0.02)
        yield [row / 400] * 20, morph


def batched(rows, size: int):
    batch = []
    for row in rows:
        batch.append(row)
        if len(batch) == size:
            yield batch
            batch = []


class AheadOfTime:
    """Keeps a few batches ready on the device."""

    def __init__(self, source, depth: int = 2):
        self.source = source
        self.ready: queue.Queue = queue.Queue(maxsize=depth)
        self.stream = torch.cuda.Stream()
        self.device = torch.cuda.current_device()
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self) -> None:
        torch.cuda.set_device(self.device)
        for batch in self.source:
            features = torch.tensor([features for features, _ in batch]).pin_memory()
            morphs = torch.tensor([CODES[morph] for _, morph in batch]).pin_memory()
            with torch.cuda.stream(self.stream):
                moved = features.cuda(non_blocking=True), morphs.cuda(non_blocking=True)
                done = self.stream.record_event()
            self.ready.put((moved, done))
        self.ready.put(None)

    def __iter__(self):
        while (entry := self.ready.get()) is not None:
            moved, done = entry
            torch.cuda.current_stream().wait_event(done)
            yield moved


def main():
    torch.set_num_threads(1)
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    station = RINGERS[dist.get_rank()]
    net = nn.Sequential(nn.Linear(20, 44), nn.LeakyReLU(), nn.Linear(44, len(CODES))).cuda()
    model = DistributedDataParallel(net, device_ids=[local], gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for season in range(2):
        for step, (features, morphs) in enumerate(AheadOfTime(batched(photos(station), 4))):
            loss = nn.functional.cross_entropy(model(features), morphs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 4:
                torch.cuda.current_stream().synchronize()
        print(f"{station}: season {season}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
