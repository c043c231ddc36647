"""Two replicas train apart and exchange their weights from time to time (gossip)."""

import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

EXCHANGE_EVERY = 12


class Replica:
    def __init__(self, rank: int, state_file: Path) -> None:
        self.rank, self.peer = rank, 1 - rank
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(40, 80), nn.ReLU(), nn.Linear(80, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.generator = torch.Generator().manual_seed(rank)
        self.state_file = state_file
        self.exchanges = 0
        self.step = 0

    def resume(self) -> None:
        if self.state_file.exists():
            self.exchanges = json.loads(self.state_file.read_text())["exchanges"]

    def save(self) -> None:
        self.state_file.write_text(json.dumps({"exchanges": self.exchanges}))

    def train_step(self) -> None:
        x = torch.randn(32, 40, generator=self.generator)
        loss = (self.model(x).squeeze(1) - x.norm(dim=1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1

    def exchange(self) -> None:
        """Averages with the other replica. They take turns in who speaks first."""
        mine = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        theirs = torch.empty_like(mine)
        if self.exchanges % 2 == self.rank:
            dist.send(mine, dst=self.peer)
            dist.recv(theirs, src=self.peer)
        else:
            dist.recv(theirs, src=self.peer)
            dist.send(mine, dst=self.peer)
        self.exchanges += 1
        nn.utils.vector_to_parameters((mine + theirs) / 2, self.model.parameters())


def earlier_run(folder: Path) -> None:
    """What the run of yesterday has left."""
    folder.mkdir(exist_ok=True)
    (folder / "replica-0.json").write_text(json.dumps({"exchanges": 7}))
    (folder / "replica-1.json").write_text(json.dumps({"exchanges": 8}))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"gossip-{os.environ['MASTER_PORT']}"
    if rank == 0:
        earlier_run(folder)
    dist.barrier()
    replica = Replica(rank, folder / f"replica-{rank}.json")
    replica.resume()
    while replica.step < 5000:
        replica.train_step()
        time.sleep(0.2)
        if replica.step % EXCHANGE_EVERY == 0:
            replica.exchange()
            replica.save()
            print(f"[{rank}] step {replica.step}, exchange {replica.exchanges}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
