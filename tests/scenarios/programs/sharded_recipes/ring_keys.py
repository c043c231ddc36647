"""Ring attention by hand: keys and values travel round the context-parallel ranks, sends and receives on two groups."""

import math

import torch
import torch.distributed as dist


class RingExchange:
    """Even ranks send first, odd ranks receive first; two groups let the transfers overlap."""

    def __init__(self, first: dist.ProcessGroup, second: dist.ProcessGroup) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.next, self.prev = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        self.first, self.second = first, second

    def __call__(self, block: torch.Tensor) -> torch.Tensor:
        arrived = torch.empty_like(block)
        if self.rank % 2 == 0:
            dist.send(block, self.next, group=self.first)
            dist.recv(arrived, self.prev, group=self.second)
        else:
            dist.recv(arrived, self.prev, group=self.first)
            dist.send(block, self.next, group=self.second)
        return arrived


def attend(query, key, value, best, norm, out):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    peak = torch.maximum(best, scores.amax(-1, keepdim=True))
    weights = (scores - peak).exp()
    shrink = (best - peak).exp()
    return peak, norm * shrink + weights.sum(-1, keepdim=True), out * shrink + weights @ value


def ring_attention(query, key, value, exchange):
    best = torch.full((*query.shape[:-1], 1), -math.inf)
    norm = torch.zeros_like(best)
    out = torch.zeros_like(query)
    for turn in range(exchange.size):
        best, norm, out = attend(query, key, value, best, norm, out)
        if turn + 1 < exchange.size:
            key, value = exchange(torch.stack([key, value])).unbind(0)
    return out / norm


def main() -> None:
    dist.init_process_group("gloo")
    exchange = RingExchange(dist.new_group(), dist.new_group())
    torch.manual_seed(dist.get_rank())
    genome = torch.randn(2, 4, 256, 16)  # this rank's part of the sequence
    projection = torch.randn(3, 16, 16) / 4
    for layer in range(4):
        query, key, value = (genome @ matrix for matrix in projection)
        genome = genome + ring_attention(query, key, value, exchange)
        norms = genome.norm()
        dist.all_reduce(norms)
        if dist.get_rank() == 0:
            print(f"layer {layer}: {norms.item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
