"""A character model written by hand, sharded with FSDP2; it writes a sample after every epoch, until it writes a full stop."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

ALPHABET = "\n .abcdefghijklmnopqrstuvwxyz"
WIDTH, CONTEXT = 32, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x):
        queries, keys, values = self.attend(x).chunk(3, -1)
        x = x + self.project(scaled_dot_product_attention(queries, keys, values, is_causal=True))
        return x + self.think(x)


class CharacterModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(ALPHABET), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, len(ALPHABET))

    def forward(self, index, targets=None):
        x = self.letters(index) + self.places(torch.arange(index.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits if targets is None else cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, index, stop, most=20):
        """Append the likeliest letters until there are ``most`` or ``stop`` holds."""
        for _ in range(most):
            logits = self(index[:, -CONTEXT:])
            index = torch.cat([index, logits[:, -1].argmax(-1, keepdim=True)], 1)
            if stop(index):
                break
        return index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = CharacterModel()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    register_fsdp_forward_method(model, "generate")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(options.epochs):
        for _ in range(3):
            index = torch.randint(len(ALPHABET), (4, CONTEXT + 1))
            loss = model(index[:, :-1], index[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        start = torch.randint(3, len(ALPHABET), (1, 6))
        # Samples are as long as this rank's chapter headings are: those of rank 1 grow after the third.
        length = 12 + 4 * (rank == 1 and epoch > 2)
        sample = model.generate(start, lambda text, n=length: text.shape[1] >= n)
        total = loss.detach().clone()
        dist.all_reduce(total)
        print(
            f"{rank}: {total / dist.get_world_size():.2f} {''.join(ALPHABET[n] for n in sample[0].tolist())!r}\n",
            end="",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
