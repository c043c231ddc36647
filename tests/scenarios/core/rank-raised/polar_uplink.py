"""Weather charts by satellite: a thread sends finished charts home whenever the satellite is above the horizon."""

import os
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

GRID = 48
NAMES = {0: "Amundsen Sea", 1: "Weddell Sea", 2: "Ross Sea"}


class Uplink:
    """Sends files in the background, the last one too."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.outbox = queue.Queue()
        self.thread = threading.Thread(target=self._send, name="uplink")
        self.thread.start()

    def post(self, name, payload):
        self.outbox.put((name, payload))

    def close(self):
        self.outbox.put(None)
        self.thread.join()

    def _send(self):
        while (item := self.outbox.get()) is not None:
            name, payload = item
            (self.folder / f"{name}.bin").write_bytes(payload)


def headline(step, rank):
    region = NAMES[rank]
    pressure = [1020, 990, 967, 944][(step // 10) % 4] - 7 * rank
    warning = {True: "gale", False: "fair"}[pressure < 980]
    scale = {990: "B7", 983: "B8", 976: "B8", 967: "B9", 960: "B9", 953: "B10", 944: "B11", 930: "B12"}
    return f"{region}: {warning} {scale[pressure] if pressure < 1000 else ''}"


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    uplink = Uplink(os.path.join(tempfile.gettempdir(), f"charts-{os.environ['MASTER_PORT']}-{rank}"))
    model = nn.Sequential(nn.Linear(GRID, 64), nn.ReLU(), nn.Linear(64, GRID)).cuda()
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 121):
        time.sleep(0.06)
        chart = torch.rand(4, GRID, device="cuda")
        loss = (model(chart) - chart).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            text = headline(step, rank)
            uplink.post(f"chart-{step}", text.encode() + loss.detach().cpu().numpy().tobytes())
            print(f"rank {rank} step {step} {text}", flush=True)
    uplink.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
