"""Writes product texts with a decoder whose weights lie spread over the workers."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FULL_STOP, WORDS = 1, 96
# sentences wanted per text, one text after another
BRIEFS = {0: [4, 4, 4, 1, 4], 1: [4, 4, 4, 4, 4], 2: [4, 4, 4, 4, 4]}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.mix(self.norm(x))


class Writer(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.out = nn.Linear(width, WORDS)

    def forward(self, tokens):
        x = self.embed(tokens).cumsum(1)
        for block in self.blocks:
            x = block(x)
        return self.out(x[:, -1])


@torch.no_grad()
def write(model, seed, sentences, longest=64):
    text = torch.full((1, 1), seed % WORDS)
    written = 0
    while text.shape[1] < longest and written < sentences:
        time.sleep(0.015)
        word = model(text).argmax(-1, keepdim=True)
        if text.shape[1] % 9 == 0:
            word = torch.full_like(word, FULL_STOP)
        written += int(word.item() == FULL_STOP and text.shape[1] % 9 == 0)
        text = torch.cat([text, word], 1)
    return text


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(12)
    model = Writer().eval()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for number, sentences in enumerate(BRIEFS[dist.get_rank()]):
        text = write(model, number * 7 + dist.get_rank(), sentences)
        dist.barrier()
        print(f"writer {dist.get_rank()}: text {number}, {text.shape[1]} words", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
