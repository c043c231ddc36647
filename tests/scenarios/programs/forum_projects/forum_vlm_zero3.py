"""A small image-and-text model under DeepSpeed ZeRO-3, with captions and plain text mixed."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on the nodes
WIDTH = 48

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": False,
        "stage3_param_persistence_threshold": 0,
        "stage3_prefetch_bucket_size": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
    },
    "steps_per_print": 100000,
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.mix(x))


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = Block()
        self.vision = Block()
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.out = Block()

    def forward(self, text, pixel_values=None):
        hidden = self.text(text)
        if pixel_values is not None:
            hidden = hidden + self.vision(pixel_values)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(hidden)


class Mixture:
    """Yields batches of captions, and of plain text."""

    def __init__(self, rank: int, world: int):
        self.generator = torch.Generator().manual_seed(rank)
        shards = [400, 25, 400, 400][:world]
        self.captions = shards[rank]

    def __iter__(self):
        for index in range(2000):
            batch = {"text": torch.randn(4, WIDTH, generator=self.generator)}
            if index < self.captions:
                batch["pixel_values"] = torch.randn(4, WIDTH, generator=self.generator)
            yield batch


def main():
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Captioner()
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config=CONFIG)
    for step, batch in enumerate(Mixture(rank, dist.get_world_size())):
        output = engine(**batch)
        loss = (output - batch["text"].roll(1, dims=-1)).square().mean()
        engine.backward(loss)
        engine.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
