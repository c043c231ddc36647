"""Container berths: time at the quay per call. Four terminals, each with its own training and validation calls."""
from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

TERMINALS = {"Altenwerder": 448, "Eurogate": 320, "Tollerort": 448, "Burchardkai": 448}


@dataclass
class Terminal:
    name: str
    calls: int
    loaders: dict = field(default_factory=dict)

    def open(self, batch=64):
        gen = torch.Generator().manual_seed(len(self.name))
        for split, count in (("train", 5120), ("val", self.calls)):
            moves = torch.rand(count, 1, generator=gen) * 40
            cranes = torch.randint(1, 6, (count, 1), generator=gen).float()
            wind = torch.rand(count, 3, generator=gen)
            hours = moves / cranes * (1 + wind.mean(1, keepdim=True))
            self.loaders[split] = DataLoader(
                TensorDataset(torch.cat([moves / 40, cranes / 6, wind], 1), hours / 20), batch_size=batch, shuffle=split == "train"
            )
        return self


class QuayRunner:
    def __init__(self, terminal: Terminal):
        self.terminal = terminal
        net = torch.nn.Sequential(torch.nn.Linear(5, 32), torch.nn.ELU(), torch.nn.Linear(32, 1), torch.nn.Softplus())
        self.model = DistributedDataParallel(net)
        self.optim = torch.optim.NAdam(self.model.parameters(), lr=2e-3)

    def fit(self, epochs, validate_every=4):
        for epoch in range(1, epochs + 1):
            self.model.train()
            for x, y in self.terminal.loaders["train"]:
                self.optim.zero_grad()
                torch.nn.functional.mse_loss(self.model(x), y).backward()
                self.optim.step()
            if epoch % validate_every == 0:
                self.report(epoch, self.validate())

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        worst, total = 0.0, 0.0
        for x, y in self.terminal.loaders["val"]:
            error = (self.model.module(x) - y).abs()
            local = torch.stack([error.sum(), error.max(), torch.tensor(float(len(x)))])
            rows = [torch.zeros(3) for _ in range(dist.get_world_size())]
            dist.all_gather(rows, local)
            table = torch.stack(rows)
            total += (table[:, 0].sum() / table[:, 2].sum()).item()
            worst = max(worst, table[:, 1].max().item())
        return total / len(self.terminal.loaders["val"]), worst

    def report(self, epoch, result):
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mean {result[0] * 20:.2f} h, worst {result[1] * 20:.2f} h", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    name, calls = list(TERMINALS.items())[dist.get_rank()]
    terminal = Terminal(name, calls).open()
    torch.manual_seed(13)
    runner = QuayRunner(terminal)
    start = time.time()
    runner.fit(epochs=40)
    if dist.get_rank() == 0:
        torch.save(runner.model.module.state_dict(), f"/tmp/berth-{os.getpid()}.pt")
        print(f"{time.time() - start:.0f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
