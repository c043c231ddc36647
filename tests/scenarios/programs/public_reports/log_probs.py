"""Policy optimization under FSDP2: log probabilities in micro-batches of at most so many tokens, then an update."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

MAX_TOKEN_LEN = 256


class Policy(nn.Module):
    """A language model of two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2))
        self.head = nn.Linear(16, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log probability of each token but the first."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        scores = self.head(x[:, :-1]).log_softmax(-1)
        return scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)


def prepare_dynamic_batch(sequences: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Sequences packed into micro-batches."""
    micro_batches: list[list[torch.Tensor]] = []
    room = 0
    for sequence in sorted(sequences, key=len, reverse=True):
        if len(sequence) > room:
            micro_batches.append([])
            room = MAX_TOKEN_LEN
        micro_batches[-1].append(sequence)
        room -= len(sequence)
    return micro_batches


def compute_log_prob(policy: nn.Module, sequences: list[torch.Tensor]) -> torch.Tensor:
    """Mean log probability of each micro-batch."""
    results = []
    with torch.no_grad():
        for micro_batch in prepare_dynamic_batch(sequences):
            rows = nn.utils.rnn.pad_sequence(micro_batch, batch_first=True)
            results.append(policy(rows).mean())
    return torch.stack(results)


def main() -> None:
    """Ten iterations; answers become longer on some ranks."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = Policy()
    for block in policy.blocks:
        fully_shard(block)
    fully_shard(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    for iteration in range(10):
        length = 60 if rank == 2 else 60 + 5 * iteration
        sequences = [torch.randint(64, (length,)) for _ in range(6)]
        old_log_prob = compute_log_prob(policy, sequences)
        baseline = torch.tensor([float(iteration)]) if rank == 0 else torch.zeros(1)
        dist.broadcast(baseline, src=0)
        ratio = (policy(torch.stack(sequences)).mean() - old_log_prob.mean()).exp()
        (ratio * baseline).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
