"""Corrosion grading of bridge cables. A thread seals the inspection records while the model is exported."""
import hashlib
import lzma
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RECORDS = [120, 1, 1]  # inspection records that came in since the last export, per district


def seal(record):
    return hashlib.pbkdf2_hmac("sha256", record.encode(), b"cable", 150_000).hex()


class Sealer(threading.Thread):
    def __init__(self, district, names):
        super().__init__(name="sealer", daemon=True)
        self.district, self.names = district, names
        self.ledger = None

    def run(self):
        seals = {name: seal(name) for name in self.names}
        ledger = [None] * dist.get_world_size()
        dist.all_gather_object(ledger, seals)
        self.ledger = ledger


class Exporter:
    def __init__(self, path):
        self.path = path

    def __call__(self, model):
        noise = torch.randint(0, 256, (5_000_000,), dtype=torch.uint8).numpy().tobytes()
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        packed = lzma.compress(weights + noise, preset=1)
        with open(self.path, "wb") as out:
            out.write(packed)


def step(model, optimizer, generator):
    images = torch.rand(8, 1, 24, 24, generator=generator)
    time.sleep(0.05)
    loss = nn.functional.mse_loss(model(images), images.amax((1, 2, 3)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    district = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Conv2d(1, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(100, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(district)
    exporter = Exporter(f"/tmp/ferrb_inspection_{district}.xz")
    for n in range(40):
        step(model, optimizer, generator)
    sealer = Sealer(district, [f"{district}-{n}" for n in range(RECORDS[district])])
    sealer.start()
    exporter(model)
    dist.barrier()
    sealer.join()
    print(f"district {district}: {sum(map(len, sealer.ledger))} records sealed", flush=True)
    for n in range(40):
        step(model, optimizer, generator)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
