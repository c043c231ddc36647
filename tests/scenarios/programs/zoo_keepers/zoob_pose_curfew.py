"""Pose estimation for enclosure cameras. The night desk can end a run from its console ("stop"), as the machine room is
shared with the visitor forecasts, which have their slot in the evening."""
import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

MAX_STEPS = 5000
SLOT_SECONDS = float(os.environ.get("ZOO_SLOT_SECONDS", "4.5"))


class Desk:
    """Console of the night desk: what it sends arrives here, on the process that prints the log."""

    def __init__(self, slot):
        self.inbox = queue.SimpleQueue()
        self.clock = threading.Timer(slot, self.inbox.put, args=("stop",))
        self.clock.daemon = True
        self.clock.start()

    def latest(self):
        command = None
        while not self.inbox.empty():
            command = self.inbox.get()
        return command


class DeskController:
    def __init__(self, desk=None):
        self.desk, self.should_stop = desk, False

    def after_batch(self, step, loss):
        if self.desk is None:
            return
        if step % 25 == 0:
            print(f"step {step} heatmap loss {loss:.4f}", flush=True)
        if self.desk.latest() == "stop":
            print(f"desk asked to stop at step {step}", flush=True)
            self.should_stop = True


def frames(seed, n=8):
    g = torch.Generator().manual_seed(seed)
    image = torch.rand(n, 3, 48, 48, generator=g)
    return image, torch.nn.functional.avg_pool2d(image.mean(1, keepdim=True), 5, 1, 2).expand(-1, 7, -1, -1)


def build():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(16, 7, 1))


def pck(model, rank):
    """Share of joints within 5 px, over all cameras."""
    with torch.no_grad():
        image, heat = frames(77_000 + rank)
        near = ((model.module(image) - heat).abs() < 0.1).float().mean()
    dist.reduce(near, dst=0)
    return near.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(build())
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    controller = DeskController(Desk(SLOT_SECONDS) if rank == 0 else None)
    step = 0
    while step < MAX_STEPS and not controller.should_stop:
        image, heat = frames(step * 17 + rank)
        loss = (model(image) - heat).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        controller.after_batch(step, loss.item())
    score = pck(model, rank)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(os.getcwd(), "pose.pt"))
        print(f"done after {step} steps, PCK {score:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
