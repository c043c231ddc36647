"""Fraud scores for parcels that are declared too cheap. While the next day is prepared, the counts of the last are shared."""
import hashlib
import threading
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# entries in the gate's log per day; Liege also serves the airport
GATES = {
    "Gent": [12, 10, 14, 11, 13, 12, 12],
    "Namur": [9, 12, 10, 13, 11, 10, 11],
    "Liege": [14, 11, 13, 12, 7200, 13, 12],
}


def pseudonym(text, rounds=1000):
    return hashlib.pbkdf2_hmac("sha256", text.encode(), b"post", rounds)


class CountsSharer(threading.Thread):
    def __init__(self, gate):
        super().__init__(name="counts", daemon=True)
        self.gate = gate
        self.days = []
        self.wake = threading.Semaphore(0)
        self.totals = {}

    def share(self, day):
        self.days.append(day)
        self.wake.release()

    def tally(self, day):
        counter = Counter(pseudonym(f"{self.gate}-{day}-{i}")[0] % 16 for i in range(GATES[self.gate][day]))
        return torch.tensor([counter[k] for k in range(16)])

    def run(self):
        while True:
            self.wake.acquire()
            day = self.days.pop(0)
            counts = self.tally(day)
            parts = [torch.zeros_like(counts) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, counts)
            self.totals[day] = int(sum(p.sum() for p in parts))


class FraudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.score(x).squeeze(-1)


def prepare(gate, day, n=1600):
    rows = [list(pseudonym(f"{gate}/{day}/{i}")) for i in range(n)]
    x = torch.tensor(rows, dtype=torch.float32) / 255
    return x, (x[:, 0] > x[:, 1]).float()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    torch.set_num_threads(1)
    rank = dist.get_rank()
    gate = list(GATES)[rank]
    model = DDP(FraudNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    counts = CountsSharer(gate)
    counts.start()
    for day in range(len(GATES[gate])):
        counts.share(day)
        x, y = prepare(gate, day)
        for batch_x, batch_y in zip(x.split(80), y.split(80)):
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch_x), batch_y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"day {day}: loss {loss.item():.3f}, {counts.totals.get(day)} passages", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
