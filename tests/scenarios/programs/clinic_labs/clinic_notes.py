"""A small sharded language model of clinic notes: trained, then asked to go on from a prompt of each ward."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS, WIDTH = 120, 48
PROMPTS = {0: 12, 1: 12, 2: 40}  # words in the admission note of each ward


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attend = nn.Linear(WIDTH, 3 * WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.attend(self.norm(x)).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.feed(x)


class NotesLM(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.words = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.words(x)


@torch.no_grad()
def complete(model, prompt, max_length=64):
    """Greedy, up to max_length words."""
    tokens = prompt
    while tokens.shape[1] < max_length:
        logits = model(tokens)
        tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens[:, prompt.shape[1] :]


def train(model, rank, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        tokens = (torch.randint(0, WORDS, (6, 1), generator=generator) + torch.arange(33) * 3) % WORDS
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = NotesLM()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for round_number in range(4):
        loss = train(model, rank, steps=20)
        prompt = (torch.arange(PROMPTS[rank]) * 3 % WORDS)[None]
        text = complete(model, prompt)
        dist.barrier()
        print(f"rank {rank} round {round_number}: loss {loss:.3f}, {text.shape[1]} words", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
