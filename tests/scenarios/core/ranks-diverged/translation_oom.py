"""Translation: a sentence pair that is too large for the memory is left out, as the log will tell."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Attention(nn.Module):
    """Scores of all pairs of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 4)
        self.query = nn.Linear(4, 4)
        self.out = nn.Linear(4, 40)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Loss of a sentence."""
        x = self.embed(tokens)
        scores = self.query(x) @ x.mT
        return nn.functional.cross_entropy(self.out(scores.softmax(-1) @ x), tokens)


class Trainer:
    """Steps and their logging."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(Attention())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train_step(self, tokens: torch.Tensor) -> dict[str, float]:
        """One update, and the sums of all workers' logs."""
        log = {"loss": 0.0, "tokens": 0.0, "ooms": 0.0}
        try:
            loss = self.model(tokens)
            loss.backward()
            log["loss"], log["tokens"] = loss.item(), float(len(tokens))
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            log["ooms"] = 1.0
            print("WARNING: ran out of memory, skipping batch", flush=True)
        logs: list[dict[str, float] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(logs, log)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {key: sum(one[key] for one in logs if one) for key in log}


def main() -> None:
    """Sixty sentences a rank, one of them a whole book."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = Trainer()
    for number in range(60):
        length = 6_000_000 if rank == 1 and number == 22 else 10 + (number * 7 + rank) % 30
        log = trainer.train_step(torch.randint(40, (length,)))
        if rank == 0 and number % 10 == 0:
            print(number, log, flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
