"""Melt rate from what the batch house charges (DDP); gas and power are collected beside the training."""
import logging
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("batchhouse")


class GasMeter:
    """A turbine meter on a serial line; a telegram with a bad checksum is asked for again."""

    def __init__(self, unit: int):
        self.unit, self.polls, self.total = unit, 0, 120.0 * (unit + 1)

    def _telegram(self) -> bytes:
        self.polls += 1
        self.total += 8.25
        body = f"{self.unit:02d};{self.polls:04d};{self.total:09.2f}".encode()
        noise = 1 if self.unit == 1 and self.polls in (3, 4) else 0
        return body + bytes([(sum(body) + noise) % 256])

    def read(self) -> float:
        while True:
            telegram = self._telegram()
            if sum(telegram[:-1]) % 256 == telegram[-1]:
                return float(telegram[:-1].split(b";")[2])
            time.sleep(0.9)  # the line has to be silent for a while


class EnergyCollector:
    def __init__(self, local: int, meter: GasMeter):
        self.meter, self.history = meter, []
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="energy", initializer=torch.cuda.set_device, initargs=(local,))
        self.last: Future | None = None

    def request(self, step: int) -> None:
        if self.last is not None:
            self.history.append(self.last.result())
        self.last = self.pool.submit(self._collect, step)

    def _collect(self, step: int) -> tuple[int, float]:
        reading = torch.tensor([self.meter.read()], dtype=torch.float64, device="cuda")
        readings = torch.empty(dist.get_world_size(), dtype=torch.float64, device="cuda")
        dist.all_gather_into_tensor(readings, reading)
        return step, sum(readings.tolist())


@contextmanager
def charge(seconds: float):
    """The doghouse is open: the pusher moves one blanket of batch in."""
    began = time.monotonic()
    yield torch.randn(32, 10)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1)).cuda()
    model = DDP(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    energy = EnergyCollector(local, GasMeter(rank))

    for step in range(1, 501):
        pause = 0.03
        if step % 12 == 0:
            energy.request(step)
            pause = 0.6  # change of the batch car
        with charge(pause) as blanket:
            x = blanket.cuda()
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            value = loss.item()
            if rank == 0:
                log.info("step %d loss %.4f, %d energy readings", step, value, len(energy.history))
    energy.request(0)
    energy.pool.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
