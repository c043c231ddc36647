"""Snow-line segmentation head on webcam embeddings, sharded with FSDP2."""
import argparse
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.backends.cudnn.enabled = False


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class SnowlineHead(nn.Module):
    def __init__(self, dim=48, depth=2, classes=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Webcams:
    """Morning images of one station, reduced to a feature vector per tile."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def morning(self, tiles=32):
        image = torch.rand(3, 480, 640, generator=self.generator)
        for _ in range(8):
            image = (image + image.roll(1, 1) + image.roll(1, 2)) / 3
        bands = image.reshape(3, 16, 30, 2 * tiles, 10).mean((2, 4)).reshape(48, 2 * tiles)
        features = bands[:, :tiles].t().contiguous()
        return features, (features[:, 0] * 6).long().clamp(0, 5)


class Archive:
    def __init__(self, folder, every):
        self.folder = pathlib.Path(folder)
        self.every = every
        self.options = StateDictOptions(full_state_dict=True, cpu_offload=True)

    def maybe_store(self, model, step):
        if step == 0 or step % self.every:
            return
        if dist.get_rank() == 0:
            weights = get_model_state_dict(model, options=self.options)
            torch.save(weights, self.folder / f"snowline-{step:05d}.pt")
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--store-every", type=int, default=50)
    opts = parser.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(3)
    model = SnowlineHead().cuda()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)

    cams = Webcams(seed=100 + local)
    archive = Archive(tempfile.mkdtemp(prefix="snowline-"), opts.store_every)
    for step in range(opts.steps):
        features, line = cams.morning()
        loss = nn.functional.cross_entropy(model(features.cuda()), line.cuda())
        loss.backward()
        opt.step()
        opt.zero_grad()
        value = loss.item()
        if step % 20 == 0 and local == 0:
            print(f"step {step} loss {value:.3f}", flush=True)
        archive.maybe_store(model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
