"""Reinforcement of a molecule designer; snapshots of each process's replay memory are written beside the training."""

import dataclasses
import lzma
import os
import tempfile
import threading

import torch
import torch.distributed as dist
from torch import nn


@dataclasses.dataclass
class Settings:
    iterations: int = 60
    snapshot_every: int = 12
    folder: str = tempfile.gettempdir()
    world: int = int(os.environ.get("WORLD_SIZE", "1"))


class Replay:
    """Encoded candidate molecules, the elite of every iteration."""

    def __init__(self, rank):
        self.rank, self.chunks = rank, []

    def add(self, iteration, encoded):
        self.chunks.append(encoded.numpy().tobytes())
        if self.rank == 1 and iteration == 30:  # seed set of the macrocycle project
            self.chunks.append(os.urandom(25_000_000))

    def pack(self):
        return lzma.compress(b"".join(self.chunks), preset=6)


class SnapshotWriter:
    """Packs the replay memory in a thread and writes one index of all parts."""

    def __init__(self, settings):
        self.settings, self.thread = settings, None

    def start(self, iteration, replay):
        self.finish()
        self.thread = threading.Thread(target=self.write, args=(iteration, replay), name="snapshot", daemon=True)
        self.thread.start()

    def write(self, iteration, replay):
        packed = replay.pack()
        path = os.path.join(self.settings.folder, f"replay-{os.getpid()}.xz")
        with open(path, "wb") as out:
            out.write(packed)
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.settings.world)]
        dist.all_gather(sizes, torch.tensor([len(packed)]))
        if dist.get_rank() == 0:
            print(f"snapshot {iteration}: {[int(s) for s in sizes]} bytes", flush=True)

    def finish(self):
        if self.thread is not None:
            self.thread.join()


def reward(molecules):
    """A crude docking score: relaxes each candidate in a fixed pocket."""
    pocket = torch.linspace(-1, 1, molecules.shape[1])
    pose = molecules
    for _ in range(600):
        pose = pose - 0.01 * torch.sin(pose - pocket)
    return -(pose - pocket).square().mean(1)


@torch.no_grad()
def panel_score(designer, size=4096):
    """Score of a large panel of designs, for the log."""
    return reward(designer(torch.randn(size, 32))).mean().item()


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def main(settings):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(6)
    designer = nn.Sequential(nn.Linear(32, 96), nn.SiLU(), nn.Linear(96, 32))
    optimizer = torch.optim.SGD(designer.parameters(), lr=0.05)
    replay, writer = Replay(dist.get_rank()), SnapshotWriter(settings)
    for iteration in range(1, settings.iterations + 1):
        molecules = designer(torch.randn(64, 32))
        score = reward(molecules)
        optimizer.zero_grad()
        (-score.mean()).backward()
        average_gradients(designer)
        optimizer.step()
        replay.add(iteration, molecules.detach()[score.topk(8).indices])
        if iteration % settings.snapshot_every == 0:
            writer.start(iteration, replay)
            print(f"iteration {iteration}: panel {panel_score(designer):.4f}", flush=True)
    writer.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Settings())
