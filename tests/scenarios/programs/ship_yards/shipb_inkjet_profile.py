"""Colour profiles for inkjet heads, from charts printed by each head."""
import json
import os
import threading
import time

import torch
import torch.distributed as dist

torch.backends.cudnn.enabled = False

CHART = json.loads("""{
  "head-a": ["cyan", "magenta", "yellow", "black"],
  "head-b": ["black", "cyan", "yellow", "magenta"],
  "head-c": ["yellow", "black", "orange", "cyan"]
}""")
ABSORPTION = {"cyan": 0.7, "magenta": 0.6, "yellow": 0.3, "black": 0.95}
CHART_PAGES = 20


class HeadTelemetry:
    """Reports nozzle temperature to the log file while the head is in use."""

    def __init__(self, path):
        self.path, self.closed = path, threading.Event()
        self.thread = threading.Thread(target=self._report, name="telemetry")
        self.thread.start()

    def _report(self):
        with open(self.path, "w") as out:
            while not self.closed.wait(1.5):
                out.write(f"{time.time():.1f} 38.5\n")
                out.flush()

    def close(self):
        self.closed.set()
        self.thread.join()


class Profiler:
    def __init__(self, head, device):
        self.inks, self.device = CHART[head], device
        self.weights = torch.full((24, 8), 0.1, device=device, requires_grad=True)

    def page(self, number):
        ink = self.inks[number // CHART_PAGES % len(self.inks)]
        ramp = torch.linspace(0, 1, 24) * ABSORPTION[ink]
        time.sleep(0.06)
        return ramp.repeat(12, 1) + torch.randn(12, 24) * 0.01

    def learn(self, number):
        chart = self.page(number).to(self.device)
        loss = (chart @ self.weights).square().mean()
        (grad,) = torch.autograd.grad(loss, self.weights)
        dist.all_reduce(grad)
        with torch.no_grad():
            self.weights -= 0.1 * grad / dist.get_world_size()
        return loss


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    head = sorted(CHART)[dist.get_rank()]
    telemetry = HeadTelemetry(os.devnull)
    profiler = Profiler(head, torch.device("cuda", local))
    for number in range(400):
        loss = profiler.learn(number)
        if number % 10 == 0:
            print(f"{head}: page {number}, {loss.item():.4f}", flush=True)
    telemetry.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
