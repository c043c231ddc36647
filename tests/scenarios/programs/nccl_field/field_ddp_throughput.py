"""Character language model on DDP. Prints loss and throughput every few steps."""

import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = "the quick brown fox jumps over the lazy dog. " * 400


@dataclass
class Meter:
    """Tokens per second of this job."""

    window: int = 6
    started: float = field(default_factory=time.perf_counter)
    tokens: int = 0

    def add(self, tokens: int) -> None:
        self.tokens += tokens

    def speeds(self, device: torch.device) -> torch.Tensor:
        """What each rank has done in this window."""
        mine = torch.tensor([self.tokens / (time.perf_counter() - self.started)], dtype=torch.float64).to(device)
        everyone = torch.empty(dist.get_world_size(), dtype=torch.float64, device=device)
        dist.all_gather_into_tensor(everyone, mine)
        self.started, self.tokens = time.perf_counter(), 0
        return everyone.cpu()


class CharModel(nn.Module):
    def __init__(self, vocabulary: int, width: int = 48) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(self.embed(tokens)))


def batches(ids: torch.Tensor, rank: int):
    generator = torch.Generator().manual_seed(rank)
    while True:
        starts = torch.randint(0, len(ids) - 33, (8,), generator=generator)
        block = torch.stack([ids[s : s + 33] for s in starts.tolist()])
        time.sleep(0.15)
        yield block[:, :-1], block[:, 1:]


def main() -> None:
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    ids = torch.tensor([letters.index(c) for c in TEXT])
    model = DDP(CharModel(len(letters)).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Meter()
    for step, (inputs, targets) in enumerate(batches(ids, rank), 1):
        logits = model(inputs.to(device))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        meter.add(inputs.numel())
        last = loss.item()
        if step % meter.window == 0 and rank == 0:
            speed = meter.speeds(device).sum().item()
            print(f"step {step}: loss {last:.3f}, {speed:.0f} tokens/s", flush=True)
        if step == 60:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
