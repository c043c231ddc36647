"""An encoder and a decoder, each with a group of its own, so that their averages do not wait for one another."""

import torch
import torch.distributed as dist
from torch import nn


def average(parameters: list[nn.Parameter], group: dist.ProcessGroup) -> None:
    """The gradients of one of the two."""
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=False):
        p.grad.copy_(part.view_as(p))


def main() -> None:
    """A hundred steps; ranks begin with one or the other in turn, which spreads the load of the network."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    encoder, decoder = nn.Linear(24, 12), nn.Linear(12, 24)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    jobs = [(list(encoder.parameters()), dist.new_group()), (list(decoder.parameters()), dist.new_group())]
    torch.manual_seed(rank)
    for step in range(100):
        x = torch.randn(16, 24)
        loss = (decoder(encoder(x).tanh()) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        first = (rank // 2) if step >= 50 else 0
        for parameters, group in jobs[first:] + jobs[:first]:
            average(parameters, group)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
