"""Barrel ageing model; each rank keeps a ledger of its casks, written in the background while training goes on."""
import json
import logging
import pathlib
import queue
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("barrels")

COOPERS = {
    0: [{"cask": 101, "wood": "Allier", "toast": "medium"}, {"cask": 102, "wood": "Tronçais", "toast": "light"}],
    1: [{"cask": 201, "wood": "Vosges", "toast": "medium"}, {"cask": 202, "wood": "Allier", "toast": "heavy"}],
    2: [{"cask": 301, "wood": "Limousin", "toast": "light"}, {"cask": 302, "wood": "Vosges", "toast": "medium"}],
}


class TastingRoom:
    """Passes figures on to the board in the tasting room."""

    def __init__(self, path):
        self.figures = queue.Queue()
        self.path = path
        self.thread = threading.Thread(target=self._pass_on, name="tasting-room")
        self.thread.start()

    def _pass_on(self):
        with self.path.open("w") as board:
            for figure in iter(self.figures.get, None):
                board.write(f"{figure:.5f}\n")

    def close(self):
        self.figures.put(None)
        self.thread.join()


class Ledger:
    def __init__(self, folder, casks):
        self.folder, self.casks = folder, casks
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self.pending = None

    def re_toast(self, cask, toast):
        for entry in self.casks:
            if entry["cask"] == cask:
                entry["toast"] = {entry["toast"], toast}

    def _write(self, step, weights):
        torch.save(weights, self.folder / f"ageing-{step}.pt")
        (self.folder / f"casks-{step}.json").write_text(json.dumps(self.casks))

    def drain(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None
        dist.barrier()

    def save(self, step, model):
        self.drain()
        weights = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.pending = self.writer.submit(self._write, step, weights)


def train(steps=700, every=100):
    rank = dist.get_rank()
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"ledger{rank}-"))
    room = TastingRoom(folder / "board.txt")
    ledger = Ledger(folder, COOPERS[rank])
    net = DistributedDataParallel(nn.Sequential(nn.Linear(40, 400), nn.SiLU(), nn.Linear(400, 400), nn.SiLU(),
                                                nn.Linear(400, 3)))
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-4)
    for step in range(1, steps + 1):
        months = torch.rand(48, 40) * 24
        target = torch.stack([months.mean(1), months.std(1), months.amax(1)], 1) / 24
        loss = nn.functional.l1_loss(net(months / 24), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        room.figures.put(loss.item())
        if step == 230:
            ledger.re_toast(202, "light")
        if step % every == 0:
            log.info("step %d loss %.4f", step, loss.item())
            ledger.save(step, net.module)
    ledger.drain()
    room.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
