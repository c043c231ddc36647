"""Captions with or without a picture: a text model with a vision tower, sharded by fully_shard."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS, LENGTH, WIDTH = 60, 14, 24


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, pictures):
        return self.mix(torch.relu(self.patches(pictures).mean(dim=(2, 3))))


class Captioner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.tower = Tower()
        self.mix = nn.Linear(2 * WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, pictures=None):
        x = self.embed(tokens)
        if pictures is not None:
            x = x + self.tower(pictures).unsqueeze(1)
        history = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).unsqueeze(1)
        return self.out(torch.tanh(self.mix(torch.cat([x, history], dim=-1))))


class Captions:
    """Newspaper captions. Older years have lost their pictures here and there."""

    def __init__(self, rank: int) -> None:
        self.rank, self.rng = rank, torch.Generator().manual_seed(rank)

    def __iter__(self):
        for number in range(1000):
            tokens = torch.randint(0, WORDS, (6, LENGTH), generator=self.rng)
            pictures = torch.rand(6, 3, 16, 16, generator=self.rng)
            lost = self.rank == 1 and number == 33
            yield {"tokens": tokens, "pictures": None if lost else pictures}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = Captioner()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.tower, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, batch in enumerate(Captions(dist.get_rank())):
        logits = model(batch["tokens"][:, :-1], batch["pictures"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["tokens"][:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
        time.sleep(0.06)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
