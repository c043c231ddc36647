"""Writes sample recipes with a language model that is sharded by fully_shard, to look at while it trains."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

END = 0


class Writer(torch.nn.Module):
    def __init__(self, vocabulary: int = 40, width: int = 16) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(words)
        for block in self.blocks:
            hidden = hidden + torch.tanh(block(hidden.cumsum(1) / hidden.shape[1]))
        return self.head(hidden)


@torch.no_grad()
def generate(model: Writer, prompt: list[int], longest: int = 30) -> list[int]:
    words = list(prompt)
    while len(words) < longest:
        logits = model(torch.tensor([words]))[0, -1]
        following = int(torch.multinomial(logits.softmax(-1), 1))
        words.append(following)
        if following == END:
            break
    return words


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Writer()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    torch.manual_seed(20 + rank)
    for step in range(1, 41):
        words = torch.randint(40, (4, 12))
        logits = model(words[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            recipe = generate(model, [rank + 1, 5])
            dist.barrier()
            texts = [None] * dist.get_world_size()
            dist.all_gather_object(texts, recipe)
            if rank == 0:
                print(f"step {step}:", *texts, sep="\n  ", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
