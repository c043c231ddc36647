"""Cloth draping in two stages: the first encodes garment panels, the second predicts folds."""
import time

import torch
import torch.distributed as dist
from torch import nn

PANELS, WIDTH, MICRO = 8, 16, 2


def garment_panels(step):
    """Panels of one garment; sleeveless cuts come without the last pair."""
    time.sleep(0.04)
    generator = torch.Generator().manual_seed(step)
    panels = torch.randn(PANELS, 10, generator=generator)
    return panels[: PANELS - MICRO] if step == 45 else panels


class Encode:
    def __init__(self):
        self.net = nn.Linear(10, WIDTH)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self, number):
        outputs = [self.net(micro) for micro in garment_panels(number).split(MICRO)]
        for output in outputs:
            dist.send(output.detach(), dst=1)
        self.optimizer.zero_grad()
        for output in outputs:
            gradient = torch.empty_like(output)
            dist.recv(gradient, src=1)
            output.backward(gradient)
        self.optimizer.step()


class Fold:
    def __init__(self):
        self.net = nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self, number):
        inputs = []
        for _ in range(PANELS // MICRO):
            activation = torch.empty(MICRO, WIDTH)
            dist.recv(activation, src=0)
            inputs.append(activation.requires_grad_())
        self.optimizer.zero_grad()
        for activation in inputs:
            self.net(activation).pow(2).mean().backward()
            dist.send(activation.grad, dst=0)
        self.optimizer.step()
        if number % 20 == 0:
            print("garment", number, flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    stage = (Encode, Fold)[dist.get_rank()]()
    for number in range(150):
        stage.step(number)
    dist.destroy_process_group()
