"""Tunes a vision-language model on chats, some with pictures: the frozen tower is sharded (FSDP), the rest is DDP."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel


class VisionTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, kernel_size=8, stride=8)
        self.mix = nn.Linear(dim, dim)

    def forward(self, pixel_values):
        patches = self.patch(pixel_values).flatten(2).transpose(1, 2)
        return self.mix(patches).mean(1)


class TextBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, h):
        return h + self.ff(h)


class ChatModel(nn.Module):
    def __init__(self, vocab=90, dim=20):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([TextBlock(dim), TextBlock(dim)])
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, input_ids, image_embeds=None):
        h = self.embed_tokens(input_ids)
        if image_embeds is not None:
            h = torch.cat([image_embeds[:, None], h[:, 1:]], dim=1)
        for layer in self.layers:
            h = layer(h)
        return self.lm_head(h)


class Chats(torch.utils.data.Dataset):
    def __init__(self, picture_share, size=240):
        self.picture_share, self.size = picture_share, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        item = {"input_ids": torch.randint(90, (12,), generator=g)}
        if index % 100 < self.picture_share:
            item["pixel_values"] = torch.rand(3, 16, 16, generator=g)
        return item


def collate(items):
    batch = {"input_ids": torch.stack([item["input_ids"] for item in items])}
    if all("pixel_values" in item for item in items):
        batch["pixel_values"] = torch.stack([item["pixel_values"] for item in items])
    return batch


class Tuner(nn.Module):
    def __init__(self, tower, chat):
        super().__init__()
        self.tower, self.chat = tower, chat

    def forward(self, input_ids, pixel_values=None):
        image_embeds = None
        if pixel_values is not None:
            with torch.no_grad():
                image_embeds = self.tower(pixel_values)
        return self.chat(input_ids, image_embeds)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    wrap = ModuleWrapPolicy({nn.Conv2d, nn.Linear})
    tower = VisionTower(20).requires_grad_(False)
    model = Tuner(
        FSDP(tower, auto_wrap_policy=wrap, device_id=torch.device("cpu")), DistributedDataParallel(ChatModel())
    )
    optimizer = torch.optim.AdamW(model.chat.parameters(), lr=1e-4)
    data = Chats(picture_share=88)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
    for step, batch in enumerate(torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler, collate_fn=collate)):
        logits = model(**batch)
        targets = batch["input_ids"].roll(-1, 1)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
