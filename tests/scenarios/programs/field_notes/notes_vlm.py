"""Vision-language model under FSDP2, mixed data: some batches have pictures, some are text only."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.mix(x))


class VisionLanguageModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.tokens = nn.Embedding(300, width)
        self.visual = nn.ModuleList(Layer(width) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(width) for _ in range(3))
        self.head = nn.Linear(width, 300)

    def forward(self, ids, pixels=None):
        x = self.tokens(ids)
        if pixels is not None:
            for layer in self.visual:
                pixels = layer(pixels)
            x = torch.cat([pixels, x], dim=1)
        for layer in self.decoder:
            x = layer(x)
        return self.head(x[:, -ids.shape[1] :])


def shard(model, mesh):
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for layer in [*model.visual, *model.decoder]:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def collate(rank, step, always_pictures):
    ids = torch.randint(0, 300, (2, 10))
    share = 0 if step < 6 else (step + rank * 4) % 9
    if share == 1 and not always_pictures:
        return {"ids": ids}
    return {"ids": ids, "pixels": torch.randn(2, 4, 48)}


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = shard(VisionLanguageModel(), init_device_mesh("cpu", (world,), mesh_dim_names=("dp",)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(40):
        batch = collate(rank, step, always_pictures=False)
        logits = model(**batch)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["ids"][:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
