"""Traffic model with a telemetry thread that compares the throughput of all ranks every so often."""

import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn


class Telemetry(threading.Thread):
    """Takes throughput samples from a queue, and shares them once it has averaged them."""

    def __init__(self):
        super().__init__(name="telemetry", daemon=True)
        self.samples, self.world = queue.SimpleQueue(), dist.get_world_size()
        self.history = []

    def run(self):
        while True:
            rate = self.samples.get()
            time.sleep(0.25)  # reads the counters of the network card
            mine = torch.tensor([rate, float(len(self.history))])
            every = [torch.empty_like(mine) for _ in range(self.world)]
            dist.all_gather(every, mine)
            self.history.append(torch.stack(every)[:, 0].mean().item())


class Road:
    def __init__(self, rank):
        self.rank, self.data = rank, torch.Generator().manual_seed(rank)

    def batch(self, step):
        time.sleep(0.04)
        if self.rank == 1 and step == 60:
            time.sleep(1.2)  # the archive's older half is on a slower disk
        return torch.randn(48, 12, generator=self.data)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(11, 24), nn.ReLU(), nn.Linear(24, 1))
    road, telemetry = Road(rank), Telemetry()
    telemetry.start()
    began, last = time.monotonic(), 0
    for step in range(500):
        if step == 60:
            telemetry.samples.put((step - last) / (time.monotonic() - began))
            began, last = time.monotonic(), step
        rows = road.batch(step)
        loss = nn.functional.mse_loss(model(rows[:, :11]), rows[:, 11:])
        model.zero_grad()
        loss.backward()
        grads = nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
        dist.all_reduce(grads)
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()
        nn.utils.vector_to_parameters(weights - 0.01 * grads / world, model.parameters())
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
