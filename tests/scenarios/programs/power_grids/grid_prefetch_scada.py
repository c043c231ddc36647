"""SCADA archives to alarms: a sequence model that reads through a background prefetcher."""
import io
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHANNELS = 18


def archive(site, hour):
    """One hour of a substation's archive, as it arrives: CSV text."""
    g = torch.Generator().manual_seed(site * 7919 + hour)
    rows = torch.randn(60, CHANNELS, generator=g).tolist()
    text = io.StringIO()
    for minute, row in enumerate(rows):
        cells = [f"{v:.4f}" for v in row]
        if site == 0 and hour == 71 and minute == 33:
            cells[5] = "1,0213"  # typed in by the operator
        text.write(";".join(cells) + "\n")
    return text.getvalue()


def parse(text):
    return torch.tensor([[float(c) for c in line.split(";")] for line in text.splitlines()])


class Prefetch:
    def __init__(self, source, depth=4):
        self.source, self.ready = source, queue.Queue(maxsize=depth)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        for item in self.source:
            self.ready.put(item)
        self.ready.put(None)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            yield item


def hours(site, n):
    for hour in range(n):
        x = parse(archive(site, hour))
        yield x.unfold(0, 20, 1).transpose(1, 2).contiguous()


class AlarmNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(CHANNELS, 96, batch_first=True)
        self.head = nn.Linear(96, CHANNELS)

    def forward(self, windows):
        out, _ = self.gru(windows[:, :-1])
        return self.head(out[:, -1]), windows[:, -1]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(AlarmNet())
    optim = torch.optim.AdamW(model.parameters(), lr=2e-3)
    began = time.time()
    for hour, windows in enumerate(Prefetch(hours(rank, 24 * 60))):
        pred, target = model(windows)
        loss = nn.functional.mse_loss(pred, target)
        optim.zero_grad()
        loss.backward()
        optim.step()
        time.sleep(0.03)
        if rank == 0 and hour % 12 == 0:
            print(f"hour {hour} loss {loss.item():.4f} {time.time() - began:.1f}s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
