"""A pipeline of two stages, written by hand: one micro-batch forward, one backward."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS, MICRO = 512, 2048, 6


def first_stage(stage: nn.Module) -> None:
    """Is one micro-batch ahead."""
    outputs = [stage(torch.randn(ROWS, WIDTH))]
    dist.send(outputs[0].detach(), dst=1)
    for number in range(MICRO):
        if number + 1 < MICRO:
            outputs.append(stage(torch.randn(ROWS, WIDTH)))
            dist.send(outputs[-1].detach(), dst=1)
        gradient = torch.empty(ROWS, WIDTH)
        dist.recv(gradient, src=1)
        outputs[number].backward(gradient)


def last_stage(stage: nn.Module) -> None:
    """Turns round what comes."""
    for _ in range(MICRO):
        received = torch.empty(ROWS, WIDTH)
        dist.recv(received, src=0)
        received.requires_grad_()
        stage(received).square().mean().backward()
        dist.send(received.grad, dst=0)


def main() -> None:
    """Twenty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    stage = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    for _ in range(20):
        optimizer.zero_grad()
        (first_stage if dist.get_rank() == 0 else last_stage)(stage)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
