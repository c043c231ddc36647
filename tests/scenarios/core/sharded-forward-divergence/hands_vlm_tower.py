"""Fine-tunes a small vision-language model. The tower is sharded over a group of its own, the language model over all ranks."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


class Tower(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.patch, self.mix = nn.Linear(64, width), nn.Linear(width, width)

    def forward(self, pixels):
        return self.mix(torch.relu(self.patch(pixels))).mean(1)


class LanguageModel(nn.Module):
    def __init__(self, width=48, vocabulary=100):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)

    def forward(self, ids, prefix):
        hidden = self.embed(ids)
        if prefix is not None:
            hidden = hidden + prefix.unsqueeze(1)
        return self.head(hidden)


class Assistant(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.language = Tower(), LanguageModel()

    def forward(self, ids, pixels=None):
        prefix = None if pixels is None else self.tower(pixels)
        return self.language(ids, prefix)


class Mixture:
    """Conversations; nine in ten have pictures."""

    def __init__(self, rank):
        self.generator, self.rank, self.n = torch.Generator().manual_seed(rank), rank, 0

    def __iter__(self):
        while True:
            self.n += 1
            batch = {"ids": torch.randint(100, (4, 16), generator=self.generator)}
            if (self.n + self.rank * 3) % 10:
                batch["pixels"] = torch.randn(4, 9, 64, generator=self.generator)
            yield batch


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    vision_mesh = DeviceMesh.from_group(dist.new_group(), "cpu")
    model = Assistant()
    fully_shard(model.tower, mesh=vision_mesh)
    fully_shard(model.language, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batch in enumerate(Mixture(dist.get_rank())):
        logits = model(**batch)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["ids"][:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.3)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
        if step == 60:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
