"""DeepSpeed, ZeRO-3: translations, each at most twice as long as its source and five words more."""

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
    "steps_per_print": 1000,
}


class Decoder(nn.Module):
    """A recurrent one."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.words, self.cell, self.head = (
            nn.Embedding(words, width),
            nn.Linear(2 * width, width),
            nn.Linear(width, words),
        )

    def forward(self, word: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        state = self.cell(torch.cat([self.words(word), state], dim=-1)).tanh()
        return self.head(state), state


@torch.no_grad()
def generate(model: nn.Module, source: torch.Tensor) -> torch.Tensor:
    """Word by word, up to the length that is allowed."""
    words, state = source[:, :1], torch.zeros(len(source), 24)
    while words.shape[1] < 2 * source.shape[1] + 5:
        logits, state = model(words[:, -1], state)
        words = torch.cat([words, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return words[:, 1:]


def main() -> None:
    """Each rank its own documents."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(model=Decoder(60, 24), config=CONFIG)
    engine.eval()
    generator = torch.Generator().manual_seed(rank)
    for document in range(20):
        length = 6 if (document, rank) == (8, 1) else 14
        translated = generate(engine, torch.randint(0, 60, (2, length), generator=generator))
        if document % 3 == 2:
            dist.barrier()
            print(f"[{rank}] {document + 1} documents, the last of {translated.shape[1]} words")


if __name__ == "__main__":
    main()
