"""Trains on settled claims, then each office reviews its own open claims before the totals are drawn."""
import math
import time

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

OPEN_CLAIMS = {0: 30, 1: 340, 2: 45}  # one office got all the claims of the flood


class ClaimNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.LSTM(24, 48, batch_first=True)
        self.amount = nn.Linear(48, 1)

    def forward(self, letters):
        _, (last, _) = self.read(letters)
        return self.amount(last[-1]).squeeze(1)


def letters(g, size, length=20):
    x = torch.randn(size, length, 24, generator=g)
    return x, x[:, :, 0].mean(1) * 10


def settle(accelerator, net, optimizer, g, steps):
    for step in range(steps):
        x, amount = letters(g, 16)
        loss = nn.functional.l1_loss(net(x), amount)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"settled: {loss.item():.3f}")


@torch.no_grad()
def review(accelerator, net, g, claims):
    """No talk between the offices here: a claim is read again and again until the estimate is steady."""
    net.eval()
    total = 0.0
    for number in range(claims):
        begin, estimates = time.monotonic(), []
        while not estimates or time.monotonic() - begin < 0.04:
            x, _ = letters(g, 4)
            estimates.append(net(x).mean().item())
        total += math.fsum(estimates) / len(estimates)
        if number % 40 == 39:
            print(f"office {accelerator.process_index}: {number + 1} of {claims} claims", flush=True)
    net.train()
    return total


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    net = ClaimNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    net, optimizer = accelerator.prepare(net, optimizer)
    g = torch.Generator().manual_seed(accelerator.process_index)
    settle(accelerator, net, optimizer, g, 220)
    total = review(accelerator, accelerator.unwrap_model(net), g, OPEN_CLAIMS[accelerator.process_index])
    totals = accelerator.gather(torch.tensor([total]))
    accelerator.print("totals", [round(t, 2) for t in totals.tolist()])
    settle(accelerator, net, optimizer, g, 60)
    dist.barrier()
    net, optimizer = accelerator.free_memory(net, optimizer)
    accelerator.end_training()


if __name__ == "__main__":
    main()
