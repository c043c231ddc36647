"""Machine translation on DeepSpeed (ZeRO-2), with the checkpoints of our internal trainer."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import argparse  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import deepspeed  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # there is no compiler in the image

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 2, "overlap_comm": False},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "checkpoint": {"tag_validation": "Ignore"},
    "steps_per_print": 1000,
}


class Translator(nn.Module):
    def __init__(self, vocabulary=80, dim=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.layers = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, vocabulary))

    def forward(self, source, target):
        return nn.functional.cross_entropy(self.layers(self.embedding(source)).flatten(0, 1), target.flatten())


class Checkpoints:
    """Keeps the newest checkpoints; only the main process touches the disk."""

    def __init__(self, folder: Path, every: int):
        self.folder, self.every = folder, every

    def after_step(self, engine, step: int):
        if step % self.every or dist.get_rank() != 0:
            return
        print(f"saving step {step}", flush=True)
        engine.save_checkpoint(str(self.folder), tag=f"step-{step}")


def sentences(rank):
    g = torch.Generator().manual_seed(rank)
    while True:
        source = torch.randint(80, (8, 12), generator=g)
        time.sleep(0.03)
        yield source, source.flip(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=50)
    args = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    checkpoints = Checkpoints(Path(tempfile.gettempdir(), f"mt-{os.environ['MASTER_PORT']}"), args.save_every)
    data = sentences(rank)
    for step in range(1, args.steps + 1):
        loss = engine(*next(data))
        engine.backward(loss)
        engine.step()
        checkpoints.after_step(engine, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
