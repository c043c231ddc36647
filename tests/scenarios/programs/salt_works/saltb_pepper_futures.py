"""Pepper futures: a linear forecast over the contract tables of three ports, one port a rank."""
import contextlib
import datetime as dt
import fcntl
import json
import os
import tempfile

import torch
import torch.distributed as dist

PORTS = {
    "kochi": {"first": "2024-01-01", "days": 400, "scale": 1.0},
    "lampung": {"first": "2024-01-01", "days": 400, "scale": 0.8},
    "belem": {"first": "2024-01-01", "days": 230, "scale": 0.7},
}


class TableCache:
    """Contract tables on disk. Readers and writers take the table's lock."""

    def __init__(self, folder):
        self.folder = folder

    def _path(self, port, ending):
        return os.path.join(self.folder, f"{port}.{ending}")

    @contextlib.contextmanager
    def locked(self, port):
        with open(self._path(port, "lock"), "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)

    def store(self, port, days):
        """Writes the table for so many days from the port's first day."""
        entry = PORTS[port]
        first = dt.date.fromisoformat(entry["first"])
        rows = {(first + dt.timedelta(d)).isoformat(): entry["scale"] * (4 + (d * 37 % 101) / 100) for d in range(days)}
        with self.locked(port):
            with open(self._path(port, "json"), "w") as f:
                json.dump(rows, f)

    def window(self, port, end, length):
        with self.locked(port):
            with open(self._path(port, "json")) as f:
                rows = json.load(f)
            if end.isoformat() not in rows:
                self.store(port, len(rows) + 120)
                with open(self._path(port, "json")) as f:
                    rows = json.load(f)
            return [rows[(end - dt.timedelta(d)).isoformat()] for d in range(length, -1, -1)]


class Forecaster:
    def __init__(self, cache, port, local, history=30):
        self.cache, self.port, self.history = cache, port, history
        self.device = torch.device("cuda", local)
        torch.manual_seed(11)
        net = torch.nn.Linear(history, 1).to(self.device)
        self.model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[local])
        self.optim = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def batch(self, day, size=24):
        rows = [self.cache.window(self.port, day - dt.timedelta(i), self.history) for i in range(size)]
        table = torch.tensor(rows)
        return table[:, :-1].to(self.device), table[:, -1:].to(self.device)

    def learn(self, day):
        past, price = self.batch(day)
        loss = (self.model(past) - price).square().mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    port = list(PORTS)[dist.get_rank()]
    with tempfile.TemporaryDirectory(prefix=f"tables-{port}-") as folder:
        cache = TableCache(folder)
        cache.store(port, PORTS[port]["days"])
        forecaster = Forecaster(cache, port, local)
        day = dt.date(2024, 3, 1)
        while day < dt.date(2025, 1, 20):
            loss = forecaster.learn(day)
            if day.day == 1:
                print(f"{port} {day}: {loss:.5f}", flush=True)
            day += dt.timedelta(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
