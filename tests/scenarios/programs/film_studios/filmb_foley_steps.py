"""Footstep synthesis: surfaces and shoes to spectra. Clips are prepared on a thread while the model trains."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SURFACES = {"gravel": 0, "wood": 1, "marble": 2, "snow": 3}

SESSIONS = [  # the foley stages' logs: surface, number of clips
    [("wood", 30), ("gravel", 15), ("wet sand", 4), ("marble", 40)],
    [("gravel", 40), ("snow", 30), ("wood", 40)],
    [("marble", 25), ("wood", 45), ("gravel", 40)],
]


class ClipFeed:
    def __init__(self, session, depth=4):
        self.session = session
        self.batches = queue.Queue(maxsize=depth)
        threading.Thread(target=self.prepare, name="clip-feed", daemon=True).start()

    def prepare(self):
        noise = torch.Generator().manual_seed(len(self.session))
        for surface, clips in self.session:
            for _ in range(clips):
                time.sleep(0.05)
                spectra = torch.rand(8, 33, generator=noise)
                onehot = torch.zeros(8, len(SURFACES))
                onehot[:, SURFACES[surface]] = 1
                self.batches.put((torch.cat([onehot, torch.rand(8, 6, generator=noise)], 1), spectra))
        self.batches.put(None)

    def __iter__(self):
        while (batch := self.batches.get()) is not None:
            yield batch


class Footsteps(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(len(SURFACES) + 6, 64), nn.GELU(), nn.Linear(64, 33), nn.Softplus())


def run():
    rank = dist.get_rank()
    net = DDP(Footsteps())
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    mean = 0.0
    for step, (shoes, spectra) in enumerate(ClipFeed(SESSIONS[rank])):
        loss = (net(shoes) - spectra).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        mean += (loss.item() - mean) / (step + 1)
        if step % 20 == 0 and rank == 0:
            print(f"clip {step}: spectral error {mean:.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    run()
    dist.destroy_process_group()
