"""Grade estimation from hyperspectral core scans; progress goes to the control room's board."""
import json
import os
import pathlib
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False

ROCKS = {"GRN": 0, "AND": 1, "QZV": 2, "SKN": 3, "MBL": 4}
BOXES = [  # (project, rock code as logged by the geologist, boxes)
    [("HK-3", "GRN", 30), ("HK-3", "SKN", 26), ("HK-4", "QTZ", 20)],
    [("HK-5", "AND", 44), ("HK-5", "QZV", 60)],
    [("HK-7", "MBL", 52), ("HK-8", "GRN", 60)],
]


class Board(threading.Thread):
    """Writes the state of this process to the board's folder, for the display underground."""

    def __init__(self, rank):
        super().__init__(name="board")
        self.path = pathlib.Path(tempfile.gettempdir()) / f"board-{os.getpid()}-{rank}.json"
        self.state = {"rank": rank, "box": 0}
        self.closed = threading.Event()

    def run(self):
        while not self.closed.wait(1.0):
            self.path.write_text(json.dumps(self.state | {"time": time.time()}))

    def close(self):
        self.closed.set()
        self.join()
        self.path.unlink(missing_ok=True)


class CoreStore:
    def __init__(self, rank):
        self.entries = [(project, code) for project, code, count in BOXES[rank] for _ in range(count)]

    def scan(self, number):
        project, code = self.entries[number % len(self.entries)]
        g = torch.Generator().manual_seed(number)
        cube = torch.randn(160, 1024, generator=g)
        for _ in range(12):
            cube = torch.fft.irfft(torch.fft.rfft(cube)[:, :400], n=1024)
        return cube[:, :256], ROCKS[code]


class Estimator:
    def __init__(self, local_rank):
        self.rank = dist.get_rank()
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(256, 80), nn.SiLU(), nn.Linear(80, len(ROCKS))).to("cuda")
        self.model = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
        self.optimizer = torch.optim.SGD(net.parameters(), lr=2e-3, momentum=0.9)
        self.store = CoreStore(self.rank)
        self.board = Board(self.rank)

    def step(self, number):
        cube, rock = self.store.scan(number)
        target = torch.full((cube.shape[0],), rock)
        loss = nn.functional.cross_entropy(self.model(cube.to("cuda")), target.to("cuda"))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, boxes):
        self.board.start()
        for number in range(boxes):
            loss = self.step(number)
            self.board.state.update(box=number, loss=loss)
            if self.rank == 0 and number % 10 == 0:
                print(f"box {number}: {loss:.3f}", flush=True)
        self.board.close()


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    Estimator(local_rank).run(boxes=300)
    dist.destroy_process_group()
