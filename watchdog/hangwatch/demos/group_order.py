"""Two groups of the same ranks, used in an order that depends on the rank's own data.

The gradients of two heads are reduced in order of their size, each in its own group. As soon as the ranks
disagree about the order, each waits for the other in a different group. Run by ``torchrun --nproc-per-node 2``.
"""

import torch
import torch.distributed as dist


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def reduce_gradients(heads: dict[str, torch.nn.Linear], groups: dict[str, dist.ProcessGroup]) -> None:
    """Average the gradients, the largest first."""
    by_size = sorted(heads, key=lambda name: -heads[name].weight.grad.norm().item())
    for name in by_size:
        dist.all_reduce(heads[name].weight.grad, group=groups[name])


def main() -> None:
    """Train 20 steps; the data of the ranks differ more with every step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    heads = {name: torch.nn.Linear(16, 1, bias=False) for name in ("policy", "value")}
    groups = {name: dist.new_group([0, 1], group_desc=name) for name in heads}
    for step in range(1, 21):
        drift = step if rank == 1 else 0
        weights = {"policy": 10.0, "value": 5.0 + drift}
        inputs = torch.ones(8, 16)
        for name, head in heads.items():
            head.zero_grad()
            (weights[name] * head(inputs)).mean().backward()
        reduce_gradients(heads, groups)
        say(rank, f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
