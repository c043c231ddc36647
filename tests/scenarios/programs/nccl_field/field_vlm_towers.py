"""Fine-tunes a small vision-language model with FSDP2 on a mixture of captioned pictures and plain text."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset


class Mixture(Dataset):
    """Every sample has text; those of the caption corpus have an image as well."""

    def __init__(self, rank: int, length: int = 400) -> None:
        self.rank = rank
        self.kinds = ["caption"] * length
        # the chat corpus was appended at different places, since shards were concatenated by size
        for i in range(36 + 4 * rank, length, 16):
            self.kinds[i : i + 4] = ["chat"] * 4

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, i: int):
        text = torch.arange(i, i + 12) % 97
        return {"text": text, "image": torch.full((64,), i / 400) if self.kinds[i] == "caption" else None}


def collate(samples):
    images = [s["image"] for s in samples if s["image"] is not None]
    time.sleep(0.2)
    return {"text": torch.stack([s["text"] for s in samples]), "images": torch.stack(images) if images else None}


class Tower(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch, self.norm, self.project = nn.Linear(64, 80), nn.LayerNorm(80), nn.Linear(80, width)

    def forward(self, images):
        return self.project(self.norm(self.patch(images)))


class VisionLanguage(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, width)
        self.vision = Tower(width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width)) for _ in range(3))
        self.head = nn.Linear(width, 97)

    def forward(self, text, images):
        x = self.embed(text)
        if images is not None:
            x = x + self.vision(images).mean(0)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def main() -> None:
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("shard",))
    torch.manual_seed(1)
    model = VisionLanguage().cuda()
    for module in (model.vision, *model.blocks):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    loader = DataLoader(Mixture(dist.get_rank()), batch_size=4, collate_fn=collate)
    for step, batch in enumerate(loader):
        images = batch["images"].cuda() if batch["images"] is not None else None
        logits = model(batch["text"].cuda(), images)
        loss = (logits * logits).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 0:
            value = loss.item()
            if dist.get_rank() == 0:
                print(f"step {step} loss {value:.4f} images {0 if images is None else len(images)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
