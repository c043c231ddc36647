"""Old photographs, with an EMA of the weights that a thread writes to disk while training goes on."""

import copy
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Ema:
    def __init__(self, model, decay=0.99):
        self.shadow = copy.deepcopy(model)
        self.decay = decay
        self.lock = threading.Lock()

    @torch.no_grad()
    def update(self, model, writer):
        with self.lock:
            for mean, now in zip(self.shadow.parameters(), model.parameters(), strict=True):
                mean.lerp_(now, 1 - self.decay)
            with writer.lock:
                writer.stale = True


class Writer:
    def __init__(self, path, ema):
        self.path, self.ema = path, ema
        self.lock = threading.Lock()
        self.stale = False

    def run(self):
        while True:
            time.sleep(0.2)
            with self.lock:
                if not self.stale:
                    continue
                state = {"time": time.strftime("%X")}
                torch.save(torch.zeros(200_000), self.path + ".header")
                with self.ema.lock:
                    state["weights"] = self.ema.shadow.state_dict()
                    torch.save(state, self.path)
                self.stale = False


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    model = DDP(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    if rank == 0:
        ema = Ema(net)
        writer = Writer("/tmp/archive_ema.pt", ema)
        threading.Thread(target=writer.run, daemon=True).start()
    for step in range(4000):
        photo = torch.rand(2, 1, 14, 14)
        loss = (model(photo + 0.1 * torch.randn_like(photo)) - photo).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            ema.update(net, writer)
            if step % 200 == 0:
                print(f"{step} {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
