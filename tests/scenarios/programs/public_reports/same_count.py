"""FSDP2: micro-batches by tokens, as many on every rank as on the one with the most."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

MAX_TOKEN_LEN = 200


class Scorer(nn.Module):
    """One number a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: (rows, length)."""
        return self.head(self.body(self.embed(tokens)).mean(1)).squeeze(-1)


def prepare_dynamic_batch(sequences: list[torch.Tensor]) -> list[torch.Tensor]:
    """Micro-batches; ranks with fewer ones get some of a single token, which count for nothing."""
    rows = max(1, MAX_TOKEN_LEN // max(len(sequence) for sequence in sequences))
    padded = nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    micro_batches = list(padded.split(rows))
    most = torch.tensor([len(micro_batches)])
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return micro_batches + [torch.zeros(1, 1, dtype=torch.long)] * (int(most) - len(micro_batches))


def main() -> None:
    """Sixty steps with lengths of each rank's own."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Scorer()
    fully_shard(model.body)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(60):
        length = int(torch.randint(10, 90, (1,), generator=generator))
        sequences = [torch.randint(50, (length,), generator=generator) for _ in range(6)]
        for micro_batch in prepare_dynamic_batch(sequences):
            weight = 0.0 if micro_batch.shape[1] == 1 else 1.0
            (model(micro_batch).square().sum() * weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
