"""Drafts audio description for the blind: one sentence per gap in the dialogue, on a sharded model."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

# gaps in the dialogue, in frames: one row per reel, one column per describer
GAPS = """
1A  96  96  96
1B 120 120 120
2A  72  72  72
2B 144 144 144
3A  96  96  96
3B  60 132 132
4A  96  96  96
"""
FRAMES_PER_WORD = 4


class Block(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 96), nn.Linear(96, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Describer(nn.Module):
    def __init__(self, words=300, width=48, depth=3):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words)

    def forward(self, words):
        x = self.embed(words).mean(dim=1)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded():
    torch.manual_seed(12)
    model = Describer()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def gaps_of(column):
    for line in GAPS.strip().splitlines():
        reel, *frames = line.split()
        yield reel, int(frames[column])


class Narrator:
    def __init__(self, model, temperature=0.8):
        self.model, self.temperature = model, temperature

    @torch.no_grad()
    def sentence(self, opening, room):
        """Words are added for as long as they can be spoken within the gap."""
        words = torch.tensor([opening])
        while words.shape[1] * FRAMES_PER_WORD < room:
            scores = self.model(words)
            chances = torch.softmax(scores / self.temperature, dim=-1)
            words = torch.cat([words, torch.multinomial(chances, 1)], dim=1)
            time.sleep(0.015)  # the synthesiser measures the word
        return words[0].tolist()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    narrator = Narrator(sharded())
    for reel, room in gaps_of(rank):
        draft = narrator.sentence([rank + 1, 7], room)
        dist.barrier()  # drafts of a reel go to the editor together
        print(f"{reel}/{rank}: {len(draft)} words, begins {draft[:4]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
