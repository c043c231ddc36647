"""Aurora classifier with a telemetry thread, which puts together how the generators of all containers are doing."""

import hashlib
import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

SKY = 128


class Telemetry(threading.Thread):
    """Collects the host's readings on request, and exchanges them with the other hosts."""

    def __init__(self, history):
        super().__init__(name="telemetry", daemon=True)
        self.history = history
        self.requests = queue.Queue()
        torch.cuda.current_device()

    def ask(self, step):
        self.requests.put(step)

    def digest(self):
        """One checksum over the readings since the last restart."""
        state = b""
        until = time.monotonic() + self.history / 1000
        while time.monotonic() < until:
            state = hashlib.sha256(state + b"kWh" * 4096).digest()
            time.sleep(0.001)
        return state.hex()[:8]

    def run(self):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        while True:
            step = self.requests.get()
            reading = {"step": step, "digest": self.digest(), "history": self.history}
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, reading)
            if dist.get_rank() == 0:
                print(f"step {step}: readings {[r['history'] for r in everyone]}", flush=True)


def frames(steps):
    for _ in range(steps):
        time.sleep(0.5)  # one exposure of the all-sky camera
        yield torch.rand(16, SKY), torch.randint(4, (16,))


def average(module, world):
    flat = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    dist.all_reduce(flat)
    offset = 0
    for p in module.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p)).div_(world)
        offset += p.numel()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Linear(SKY, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    telemetry = Telemetry(history=1250 if rank == 1 else 10)
    telemetry.start()
    exposures = torch.zeros(1, device="cuda")
    for step, (sky, kind) in enumerate(frames(120)):
        loss = nn.functional.cross_entropy(model(sky.cuda()), kind.cuda())
        optimizer.zero_grad()
        loss.backward()
        average(model, world)
        optimizer.step()
        exposures += len(sky)
        total = exposures.item()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {total:.0f} exposures", flush=True)
        if step % 10 == 5:
            telemetry.ask(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
