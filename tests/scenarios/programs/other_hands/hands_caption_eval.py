"""Caption evaluation of a sharded decoder: each rank decodes its own prompts, then the lengths are averaged."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x)))).cumsum(1) / x.shape[1]


class Captioner(nn.Module):
    def __init__(self, vocabulary=64, width=32, depth=2):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(vocabulary, width), nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Finished:
    """A caption ends after its last phrase; long pictures have more of them."""

    def __init__(self, phrases):
        self.phrases = phrases

    def __call__(self, ids):
        return ids.shape[1] >= 2 + 3 * self.phrases


@torch.no_grad()
def decode(model, prompt, finished, limit=40):
    ids = prompt
    while ids.shape[1] < limit and not finished(ids):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
        time.sleep(0.02)
    return ids


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Captioner()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    pictures = torch.tensor([[2, 2, 2], [3, 3, 3], [2, 4, 4]])
    for number, row in enumerate(pictures):
        caption = decode(model, torch.tensor([[1, 2]]), Finished(int(row[rank])))
        length = torch.tensor([float(caption.shape[1])])
        dist.all_reduce(length)
        if rank == 0:
            print(f"picture {number}: mean length {length.item() / dist.get_world_size():.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
