"""Three pipeline stages of two tensor ranks each; the second rank of the last stage is suspended by the scheduler.

Its stage waits for it in a reduction, the stage before for the gradients of that one, and the first for the second.
"""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

WIDTH = 8


def preempt() -> None:
    """What the cluster's scheduler does when a job of higher priority wants the machine."""
    os.kill(os.getpid(), signal.SIGSTOP)


class Stage:
    """One stage: receives activations, sends its own, and the same for gradients on the way back."""

    def __init__(self) -> None:
        mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("pipeline", "tensor"))
        self.tensor = mesh.get_group("tensor")
        column = mesh["pipeline"].mesh.tolist()
        place = mesh.get_local_rank("pipeline")
        self.previous = column[place - 1] if place else None
        self.next = column[place + 1] if place + 1 < len(column) else None
        self.block = nn.Linear(WIDTH, WIDTH)

    def step(self) -> None:
        """Forward and backward of one batch."""
        inputs = torch.randn(4, WIDTH)
        if self.previous is not None:
            dist.recv(inputs, src=self.previous)
        inputs.requires_grad_()
        outputs = torch.relu(self.block(inputs))
        shared = outputs.detach().clone()
        dist.all_reduce(shared, group=self.tensor)
        gradient = 2 * shared
        if self.next is not None:
            dist.send(shared, dst=self.next)
            dist.recv(gradient, src=self.next)
        outputs.backward(gradient)
        if self.previous is not None:
            dist.send(inputs.grad, dst=self.previous)


def main() -> None:
    """Train; the fifth rank's machine is wanted by another job after a while."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    stage = Stage()
    for step in range(500):
        if (dist.get_rank(), step) == (5, 40):
            preempt()
        stage.step()
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
