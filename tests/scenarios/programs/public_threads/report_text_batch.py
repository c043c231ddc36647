"""Vision-language fine-tuning with FSDP2; the mixture has pages with and without pictures."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
WIDTH, VOCABULARY = 48, 70


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.relu(self.inner(x))


class VisionLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.vision = Block()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, patches=None):
        x = self.embed(tokens)
        if patches is not None:
            x = x + self.vision(patches).mean(1, keepdim=True)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Pages(Dataset):
    """Every page has text; those of the scanned books have pictures as well."""

    def __init__(self, rank, count):
        self.rank = rank
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(10_000 * self.rank + index)
        page = {"tokens": torch.randint(0, VOCABULARY, (13,), generator=generator)}
        appendix = self.rank == 1 and index // 2 == 33
        if not appendix:
            page["patches"] = torch.randn(4, WIDTH, generator=generator)
        return page


def collate(pages):
    batch = {"tokens": torch.stack([page["tokens"] for page in pages])}
    pictures = [page["patches"] for page in pages if "patches" in page]
    if pictures:
        batch["patches"] = torch.stack(pictures)
    return batch


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = VisionLanguageModel()
    for block in [model.vision, *model.layers]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    loader = DataLoader(Pages(rank, 400), batch_size=2, collate_fn=collate)
    for step, batch in enumerate(loader):
        tokens = batch["tokens"]
        logits = model(tokens[:, :-1], batch.get("patches"))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
