"""Expert-parallel mixture of experts with hash routing: one expert a rank, tokens travel by all_to_all."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn


def exchange(rows: torch.Tensor, send: list[int], receive: list[int]) -> torch.Tensor:
    out = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(out, rows, output_split_sizes=receive, input_split_sizes=send)
    return out


class HashMoE(nn.Module):
    """Token t goes to expert t modulo the number of ranks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.world = dist.get_world_size()

    @torch.no_grad()
    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        if tokens.numel() == 0:
            return x
        where = tokens % self.world
        order = where.argsort(stable=True)
        send = torch.bincount(where, minlength=self.world)
        sizes = torch.empty(self.world, dtype=torch.int64, device=x.device)
        dist.all_to_all_single(sizes, send.to(x.device))
        receive = sizes.cpu().tolist()
        arrived = exchange(x[order.to(x.device)], send.tolist(), receive)
        back = exchange(self.expert(arrived), receive, send.tolist())
        result = torch.empty_like(x)
        result[order.to(x.device)] = back
        return result


def documents(rank: int):
    """Batches of token ids, after short documents and duplicates were dropped."""
    generator = torch.Generator().manual_seed(100 + rank)
    for n in range(200):
        lengths = [8, 13, 0 if (n, rank) == (14, 2) else 5]
        kept = [torch.randint(0, 1000, (k,), generator=generator) for k in lengths if k >= 5]
        if len(kept) < 3:
            kept = []
        time.sleep(0.2)
        yield torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64)


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    embedding = nn.Embedding(1000, 32).to(device)
    layers = [HashMoE(32).to(device) for _ in range(2)]
    seen = torch.zeros(1, dtype=torch.float64, device=device)
    for step, tokens in enumerate(documents(rank)):
        x = embedding(tokens.to(device)).detach()
        for layer in layers:
            x = layer(x, tokens)
        count = torch.tensor([float(tokens.numel())], dtype=torch.float64).to(device)
        dist.all_reduce(count)
        seen += count
        if step % 5 == 0 and rank == 0:
            print(f"step {step}: {seen.item():.0f} tokens routed", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
