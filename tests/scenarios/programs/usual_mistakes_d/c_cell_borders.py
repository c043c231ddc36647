"""Borders of cells by a U-Net of three stages, one on each rank, with the skip connection around the middle one."""

import torch
import torch.distributed as dist
from torch import nn

BATCH, CHANNELS, SIZE = 4, 16, 96
HALF = SIZE // 2


def pictures(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """And where the borders are: both ends of the pipeline know the seed."""
    generator = torch.Generator().manual_seed(step)
    picture = torch.rand(BATCH, 1, SIZE, SIZE, generator=generator)
    return picture, (picture > 0.8).float()


def encoder_step(stage: nn.ModuleDict, step: int) -> None:
    """Fine features go to the decoder, coarse ones to the bottleneck; their gradients come back."""
    picture, _ = pictures(step)
    fine = torch.relu(stage["fine"](picture))
    coarse = torch.relu(stage["coarse"](fine))
    dist.send(fine.detach(), dst=2)
    dist.send(coarse.detach(), dst=1)
    fine_grad, coarse_grad = torch.empty_like(fine), torch.empty_like(coarse)
    dist.recv(coarse_grad, src=1)
    dist.recv(fine_grad, src=2)
    torch.autograd.backward([fine, coarse], [fine_grad, coarse_grad])


def bottleneck_step(stage: nn.ModuleDict) -> None:
    """Coarse features in, coarse features out."""
    coarse = torch.empty(BATCH, CHANNELS, HALF, HALF)
    dist.recv(coarse, src=0)
    coarse.requires_grad_()
    deep = torch.relu(stage["deep"](coarse))
    dist.send(deep.detach(), dst=2)
    grad = torch.empty_like(deep)
    dist.recv(grad, src=2)
    deep.backward(grad)
    dist.send(coarse.grad, dst=0)


def decoder_step(stage: nn.ModuleDict, step: int) -> float:
    """Puts both together; the loss."""
    deep, fine = torch.empty(BATCH, CHANNELS, HALF, HALF), torch.empty(BATCH, CHANNELS, SIZE, SIZE)
    dist.recv(deep, src=1)
    dist.recv(fine, src=0)
    deep.requires_grad_(), fine.requires_grad_()
    logits = stage["out"](torch.cat([nn.functional.interpolate(deep, scale_factor=2.0), fine], dim=1))
    loss = nn.functional.binary_cross_entropy_with_logits(logits, pictures(step)[1])
    loss.backward()
    dist.send(deep.grad, dst=1)
    dist.send(fine.grad, dst=0)
    return loss.item()


def main() -> None:
    """Fifty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    stage = nn.ModuleDict(
        [
            {"fine": nn.Conv2d(1, CHANNELS, 3, padding=1), "coarse": nn.Conv2d(CHANNELS, CHANNELS, 2, stride=2)},
            {"deep": nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)},
            {"out": nn.Conv2d(2 * CHANNELS, 1, 3, padding=1)},
        ][rank]
    )
    optimizer = torch.optim.Adam(stage.parameters(), lr=1e-3)
    for step in range(50):
        optimizer.zero_grad()
        if rank == 0:
            encoder_step(stage, step)
        elif rank == 1:
            bottleneck_step(stage)
        else:
            print(f"step {step}: loss {decoder_step(stage, step):.4f}", flush=True)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
