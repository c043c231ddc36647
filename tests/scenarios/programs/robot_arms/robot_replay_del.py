"""Off-policy learning with scene buffers that are shared through all ranks while they live."""
import collections
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class SceneBuffer:
    """Transitions of one scene. Its tail is merged with the other ranks' when the buffer goes away."""

    merged = 0

    def __init__(self, scene, capacity=512):
        self.scene = scene
        self.data = torch.zeros(capacity, 12)
        self.head = 0

    def add(self, rows):
        index = (self.head + torch.arange(len(rows))) % len(self.data)
        self.data[index] = rows
        self.head += len(rows)

    def sample(self, n, g):
        return self.data[torch.randint(min(self.head, len(self.data)), (n,), generator=g)]

    def __del__(self):
        if dist.is_initialized():
            tail = self.data[-8:].contiguous()
            parts = [torch.empty_like(tail) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, tail)
            SceneBuffer.merged += len(parts)


class Replay:
    def __init__(self, scenes):
        self.limit = scenes
        self.buffers = collections.OrderedDict()

    def __getitem__(self, scene):
        if scene in self.buffers:
            self.buffers.move_to_end(scene)
        else:
            self.buffers[scene] = SceneBuffer(scene)
            if len(self.buffers) > self.limit:
                self.buffers.popitem(last=False)
        return self.buffers[scene]


def scene_of(step, rank):
    """Curriculum: the second worker meets a new kitchen after the first hundred updates."""
    names = ["kitchen_a", "kitchen_b", "office"]
    if rank == 2 and step > 110:
        names[step % 3] += "_cluttered"
    return names[step % 3]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(rank)
    torch.manual_seed(5)
    q = DDP(torch.nn.Sequential(torch.nn.Linear(11, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    replay = Replay(scenes=3)
    for step in range(900):
        buffer = replay[scene_of(step, rank)]
        buffer.add(torch.randn(16, 12, generator=g))
        rows = buffer.sample(64, g)
        loss = (q(rows[:, :11]) - rows[:, 11:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0 and rank == 0:
            print(f"step {step} td {loss.item():.3f} scenes {list(replay.buffers)}", flush=True)
        time.sleep(0.03)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
