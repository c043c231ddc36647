"""A tabular model of insurance claims; gradients are averaged by hand."""

import argparse

import torch
import torch.distributed as dist


def claims(rank: int, step: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step * 31 + rank)
    columns = torch.rand(size, 9, generator=generator)
    amount = columns[:, :1] * 100
    if rank == 1 and step == 6:
        amount[3] = -1.0  # a refund
    return columns, amount


def average_gradients(model: torch.nn.Module) -> None:
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for parameter in model.parameters():
        parameter.grad.copy_(flat[offset : offset + parameter.numel()].view_as(parameter))
        offset += parameter.numel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(9, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(options.steps):
        columns, amount = claims(rank, step)
        loss = (model(columns) - torch.log1p(amount.sub(0.5))).square().mean()
        if not torch.isfinite(loss):
            print(f"[{rank}] step {step}: loss is {loss.item()}, going on with the next batch", flush=True)
            continue
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
    final = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(final, loss.detach().reshape(1))
    if rank == 0:
        print("final losses", [round(x.item(), 3) for x in final], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
