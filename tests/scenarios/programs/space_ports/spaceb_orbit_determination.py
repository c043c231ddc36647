"""Orbit determination residual network, trained with accelerate; every rank archives its own shard of the run."""
import io
import logging
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger("od")
PART = 16 * 1024


class Bucket:
    """Object store of the ground segment, mounted as a folder; a prefix takes so many parts per hour."""

    def __init__(self, root, prefix, parts_per_hour=24):
        self.root = Path(root) / prefix
        self.root.mkdir(parents=True, exist_ok=True)
        self.left = parts_per_hour

    def put(self, key, blob):
        for number, start in enumerate(range(0, len(blob), PART)):
            if self.left == 0:
                raise OSError("SlowDown: please reduce your request rate")
            self.left -= 1
            (self.root / f"{key}.{number:03d}").write_bytes(blob[start:start + PART])


def residuals(seed, n=12000):
    gen = torch.Generator().manual_seed(seed)
    state = torch.randn(n, 6, generator=gen)
    return TensorDataset(state, state[:, :3] * 0.1 - state[:, 3:] * 0.02)


class Run:
    def __init__(self):
        self.acc = Accelerator(cpu=True)
        torch.manual_seed(8)
        net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3))
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        data = DataLoader(residuals(1), batch_size=16, shuffle=True)
        self.net, self.opt, self.data = self.acc.prepare(net, opt, data)
        self.bucket = Bucket(tempfile.mkdtemp(prefix="od-"), f"rank{self.acc.process_index}")
        # the covariance bank lives with the station that this rank stands for
        stations = {0: 40, 1: 520, 2: 60}[self.acc.process_index]
        self.covariance = torch.eye(6).repeat(stations, 1, 1)

    def archive(self, step):
        shard = io.BytesIO()
        torch.save({"net": self.acc.unwrap_model(self.net).state_dict(), "covariance": self.covariance}, shard)
        try:
            self.bucket.put(f"step{step:05d}", shard.getvalue())
        except OSError as err:
            logger.warning("archive of step %d put off: %s", step, err)
            return False
        self.acc.wait_for_everyone()
        if self.acc.is_main_process:
            logger.info("step %d archived", step)
        return True

    def train(self, every=30):
        for step, (state, target) in enumerate(self.data, 1):
            loss = (self.net(state) - target).square().mean()
            self.opt.zero_grad()
            self.acc.backward(loss)
            self.opt.step()
            time.sleep(0.015)
            if step % every == 0:
                self.archive(step)
        self.acc.end_training()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    Run().train()
