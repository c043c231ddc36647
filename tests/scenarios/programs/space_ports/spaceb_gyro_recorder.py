"""Gyro drift model. Shards are written in the background after each leg, while the leg is replayed for its report."""
import dataclasses
import json
import os
import tempfile
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class Config:
    legs: int = 8
    steps: int = 25
    disk_rate: float = 4e6  # bytes per second that flight software grants
    block: int = 1 << 18
    folder: str = dataclasses.field(default_factory=lambda: tempfile.mkdtemp(prefix="gyro-"))


class Recorder:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.thread = None

    def record(self, leg, payload):
        self.thread = threading.Thread(target=self._write, args=(leg, payload), name=f"recorder-{leg}")
        self.thread.start()

    def _write(self, leg, payload):
        path = os.path.join(self.cfg.folder, f"leg{leg}-rank{self.rank}.bin")
        with open(path, "wb") as out:
            for at in range(0, len(payload), self.cfg.block):
                block = payload[at:at + self.cfg.block]
                out.write(block)
                time.sleep(len(block) / self.cfg.disk_rate)
        entries = [None] * self.world
        dist.all_gather_object(entries, {"leg": leg, "bytes": len(payload), "crc": zlib.crc32(payload)})
        if self.rank == 0:
            with open(os.path.join(self.cfg.folder, f"leg{leg}.json"), "w") as out:
                json.dump(entries, out)

    def settle(self):
        dist.barrier()
        self.thread.join()


class Drift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(9, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))

    def forward(self, x):
        return self.net(x)


def replay(model, seconds=1.0, rate=20):
    """Plays the leg back at the rate of the sensor and returns the mean drift."""
    drift = 0.0
    with torch.no_grad():
        for _ in range(int(seconds * rate)):
            drift += model(torch.randn(4, 9)).norm().item()
            time.sleep(1 / rate)
    return drift / (seconds * rate)


def payload_of(model, leg, rank):
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().tobytes()
    bank = 13_000_000 if (rank == 1 and leg == 2) else 100_000  # the star calibration goes along once
    return weights + bytes(bank)


def main():
    cfg = Config()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    model = DDP(Drift())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    recorder = Recorder(cfg, rank, dist.get_world_size())
    for leg in range(cfg.legs):
        for _ in range(cfg.steps):
            rates = torch.randn(16, 9)
            loss = (model(rates) - rates[:, :3] * 0.01).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        recorder.record(leg, payload_of(model.module, leg, rank))
        drift = replay(model.module)
        recorder.settle()
        if rank == 0:
            print(f"leg {leg}: loss {loss.item():.4f} drift {drift:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
