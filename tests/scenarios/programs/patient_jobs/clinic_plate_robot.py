"""Growth curve model for culture plates; a pipetting robot fills a plate between two rounds."""
import multiprocessing
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WELLS = 48


class PlateRobot:
    """Driver runs in its own process; the deck position is a shared integer."""

    seconds_per_well = 0.28

    def __init__(self):
        context = multiprocessing.get_context("fork")
        self.position = context.Value("i", 0, lock=False)
        self.door = context.Event()
        self.arm = context.Process(target=self._drive, daemon=True)
        self.arm.start()

    def _drive(self):
        self.door.wait()
        for well in range(1, WELLS + 1):
            due = time.monotonic() + self.seconds_per_well
            volume = 0.0
            while time.monotonic() < due:
                volume += 0.05
                time.sleep(0.02)
            self.position.value = well

    def fill(self):
        self.door.set()
        last = 0
        while last < WELLS:
            last = self.position.value
            yield last
            time.sleep(0.75)


def round_of_training(model, opt, readings, count):
    for _ in range(count):
        curve = torch.cumsum(torch.rand(10, readings), dim=1)
        time.sleep(0.055)
        loss = nn.functional.mse_loss(model(curve), curve[:, -1:] / readings)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    robot = PlateRobot()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Sequential(nn.Linear(18, 18), nn.ELU(), nn.Linear(18, 1)))
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    first = round_of_training(model, opt, 18, 45)

    filled = 0
    if rank == world - 1:
        for filled in robot.fill():
            pass
    plates = [None] * world
    dist.all_gather_object(plates, filled)

    second = round_of_training(model, opt, 18, 40)
    print(f"rank {rank}: wells {max(plates)}, loss {first:.3f} -> {second:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    robot.arm.terminate()


if __name__ == "__main__":
    main()
