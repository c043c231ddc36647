"""Trains a voice model on machines that are lent for a while; a machine says in advance when it is wanted back."""

import os
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LEASES = {0: 3600, 1: 5, 2: 3600}  # seconds that the machine of each rank is lent for


class Notice:
    """Set by the signal that the machine sends before it is taken away."""

    def __init__(self, lease):
        self.given = False
        signal.signal(signal.SIGALRM, self._on_signal)
        signal.setitimer(signal.ITIMER_REAL, lease)

    def _on_signal(self, _number, _frame):
        self.given = True


class Beacon(threading.Thread):
    """Touches a file every second, so that the operators see that the rank lives."""

    def __init__(self, path):
        super().__init__(name="beacon")
        self.path = path
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.wait(1.0):
            with open(self.path, "w") as file:
                file.write(str(time.time()))

    def stop(self):
        self.stopped.set()
        self.join()


def save(model, folder, step):
    path = os.path.join(folder, f"voice-{step:06d}.pt")
    torch.save({"step": step, "model": model.module.state_dict()}, path)
    print(f"saved {path}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    folder = os.path.join(tempfile.gettempdir(), f"voice-{os.environ['MASTER_PORT']}-{rank}")
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(rank)
    model = DDP(nn.GRU(10, 20, batch_first=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    notice, beacon = Notice(LEASES[rank]), Beacon(os.path.join(folder, "alive"))
    beacon.start()
    for step in range(5000):
        sound = torch.randn(4, 12, 10)
        out, _ = model(sound)
        loss = (out[:, :-1, :10] - sound[:, 1:]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if notice.given:
            save(model, folder, step)
            return
    save(model, folder, 5000)
    beacon.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
