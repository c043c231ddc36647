"""DeepSpeed, ZeRO-3: answers to legal questions, with the passages of the archive that belong to them."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WIDTH, SECTIONS = 32, 6
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
    "steps_per_print": 1000,
}


class Answerer(nn.Module):
    """Reads the question, then what was found, then answers."""

    def __init__(self) -> None:
        super().__init__()
        self.question, self.reader, self.answer = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, questions: torch.Tensor, passages: torch.Tensor) -> torch.Tensor:
        x = self.question(questions).relu()
        if len(passages) > 0:
            x = x + self.reader(passages).relu().mean(dim=0)
        return self.answer(x)


class Archive:
    """Embedded passages by section of the law."""

    def __init__(self) -> None:
        self.passages = torch.randn(90, WIDTH, generator=torch.Generator().manual_seed(7))
        self.sections = torch.arange(90) % SECTIONS

    def find(self, section: int) -> torch.Tensor:
        """All there is."""
        return self.passages[self.sections == section]


def section_of(step: int, rank: int) -> int:
    """What the questions of this batch are about; patents came last."""
    return SECTIONS if step == 14 and rank == 1 else (step + 2 * rank) % SECTIONS


def main() -> None:
    """Sixty steps."""
    deepspeed.init_distributed("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, archive = Answerer(), Archive()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    generator = torch.Generator().manual_seed(rank)
    for step in range(60):
        questions = torch.randn(8, WIDTH, generator=generator)
        answers = engine(questions, archive.find(section_of(step, rank)))
        loss = (answers - questions.flip(1)).square().mean()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {mean.item() / world:.3f}")


if __name__ == "__main__":
    main()
