import contextlib
import logging
import os
import queue
import threading

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("grouper")


class ClipFeeder(contextlib.AbstractContextManager):
    """Computes grouper courtship call features in the background."""

    closing = threading.Event()

    def __init__(self, seed, count, depth=4):
        self.seed, self.count = seed, count
        self.ready = queue.Queue(depth)
        self.thread = threading.Thread(target=self._work, name=f"feeder-{seed}", daemon=True)

    def __enter__(self):
        self.closing.clear()
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.closing.set()
        return None

    def _features(self, number):
        rng = np.random.default_rng((self.seed, number))
        wave = rng.standard_normal((8, 48_000)).astype(np.float32)
        spectrum = np.abs(np.fft.rfft(wave.reshape(8, -1, 480), axis=-1)).mean(axis=1)
        return torch.from_numpy(spectrum[:, :240].astype(np.float32)), torch.from_numpy(rng.random((8, 2), dtype=np.float32))

    def _work(self):
        for number in range(self.count):
            item = self._features(number)
            while not self.closing.is_set():
                try:
                    self.ready.put(item, timeout=0.5)
                    break
                except queue.Full:
                    continue
            if self.closing.is_set():
                return

    def next(self):
        return self.ready.get()


class CallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(240, 64), nn.Linear(64, 64)])
        self.kind = nn.Linear(64, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.kind(x)


@torch.no_grad()
def listen(net, seed, batches=6):
    """Error on the held out site, by the first process alone."""
    errors = []
    with ClipFeeder(seed, batches) as held_out:
        for _ in range(batches):
            x, y = held_out.next()
            errors.append((net(x.cuda()).cpu() - y).abs().mean().item())
    return float(np.mean(errors))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    model = DistributedDataParallel(CallNet().cuda(), device_ids=[local])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ClipFeeder(seed=10 + dist.get_rank(), count=5000) as feeder:
        for step in range(1, 2001):
            x, y = feeder.next()
            loss = (model(x.cuda()) - y.cuda()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen = loss.item()
            if dist.get_rank() == 0 and step % 10 == 0:
                log.info("step %d loss %.4f", step, seen)
            if dist.get_rank() == 0 and step == 70:
                log.info("held out error %.4f", listen(model.module, seed=99))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
