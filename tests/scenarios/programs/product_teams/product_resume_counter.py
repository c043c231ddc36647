"""Ranking model with a run state per rank. Ranks save in turns, since the shared disk does not like all of them at once."""

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

SAVE_EVERY = 6


@dataclass
class RunState:
    step: int = 0
    seen: int = 0

    def save(self, path: Path):
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> "RunState":
        return cls(**json.loads(path.read_text())) if path.exists() else cls()


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(30, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, query_and_documents):
        return self.layers(query_and_documents).squeeze(-1)


class Run:
    def __init__(self, folder: Path):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.path = folder / f"state-{self.rank}.json"
        torch.manual_seed(5)
        self.model = DDP(Ranker())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.state = RunState.load(self.path)

    def batch(self):
        g = torch.Generator().manual_seed(self.state.step * self.world + self.rank)
        time.sleep(0.05)
        x = torch.randn(16, 8, 30, generator=g)
        return x, x[..., 0].argmax(-1)

    def train(self, until: int):
        while self.state.step < until:
            x, best = self.batch()
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), best)
            loss.backward()
            self.optimizer.step()
            self.state.step += 1
            self.state.seen += len(x)
            if self.state.step % SAVE_EVERY == self.rank * 2:
                self.state.save(self.path)

    def evaluate(self) -> float:
        x, best = self.batch()
        with torch.no_grad():
            hits = (self.model.module(x).argmax(-1) == best).float().mean()
        dist.broadcast(hits, src=0)
        return hits.item()


def main():
    dist.init_process_group("gloo")
    folder = Path(tempfile.gettempdir(), f"ranker-{os.environ['MASTER_PORT']}")
    folder.mkdir(exist_ok=True)
    pilot = Run(folder)
    pilot.train(until=28)
    print(f"[{pilot.rank}] pilot: step {pilot.state.step}", flush=True)
    dist.barrier()
    run = Run(folder)
    print(f"[{run.rank}] continues with {run.state}", flush=True)
    run.train(until=60)
    print(f"[{run.rank}] ndcg@1 {run.evaluate():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
