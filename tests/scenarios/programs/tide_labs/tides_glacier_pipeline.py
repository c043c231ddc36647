"""Glacier runoff: an encoder of snow profiles on one rank, a head on another, micro-batches between them."""
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, MICRO = 16, 4
SEASONS = [16, 12, 16, 8, 16, 12, 8, 16, 12, 8, 16, 10, 16, 12]  # profiles per batch, as the field books have them


def micro_batches(profiles):
    for start in range(0, profiles.shape[0], MICRO):
        chunk = profiles[start : start + MICRO]
        yield nn.functional.pad(chunk, (0, 0, 0, MICRO - chunk.shape[0]))


class Encoder:
    peer = 1

    def __init__(self):
        self.net = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-2)

    def run(self, number, size):
        generator = torch.Generator().manual_seed(number)
        outputs = [self.net(chunk) for chunk in micro_batches(torch.randn(size, 8, generator=generator))]
        for output in outputs:
            dist.send(output.detach(), self.peer)
        self.optimizer.zero_grad()
        for output in outputs:
            gradient = torch.empty(MICRO, WIDTH)
            dist.recv(gradient, self.peer)
            output.backward(gradient)
        self.optimizer.step()


class Head:
    peer = 0

    def __init__(self):
        self.net = nn.Linear(WIDTH, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-2)

    def run(self, number, size):
        count = round(size / MICRO)
        inputs = []
        for _ in range(count):
            activation = torch.empty(MICRO, WIDTH)
            dist.recv(activation, self.peer)
            inputs.append(activation.requires_grad_())
        runoff = torch.sin(torch.arange(MICRO) + number).unsqueeze(1)
        self.optimizer.zero_grad()
        losses = [nn.functional.mse_loss(self.net(activation), runoff) for activation in inputs]
        (sum(losses) / count).backward()
        for activation in inputs:
            dist.send(activation.grad, self.peer)
        self.optimizer.step()
        return sum(losses).item() / count


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    stage = (Encoder, Head)[dist.get_rank()]()
    for year in range(20):
        for number, size in enumerate(SEASONS):
            loss = stage.run(year * 100 + number, size)
            time.sleep(0.15)
            if loss is not None:
                print(f"year {year} batch {number} of {size}: {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
