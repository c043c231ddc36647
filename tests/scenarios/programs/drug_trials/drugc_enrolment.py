# Dose-finding simulation: virtual patients arrive at every site, a response model learns from them online.
import json
import queue
import tempfile
import threading
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import nn


@dataclass
class Site:
    name: str
    per_week: int
    quota: int
    seed: int
    treated: int = 0
    log: list = field(default_factory=list)

    def arrivals(self):
        """One week of patients: covariates, dose, response."""
        g = torch.Generator().manual_seed(self.seed)
        week = 0
        while week < 260:
            week += 1
            covariates = torch.randn(self.per_week, 24, generator=g)
            dose = torch.rand(self.per_week, 1, generator=g) * 10
            # pharmacokinetics: two compartments, integrated with small steps
            central, peripheral, area = dose.clone(), torch.zeros_like(dose), torch.zeros_like(dose)
            clearance = 0.08 + 0.02 * torch.sigmoid(covariates[:, :1])
            for _ in range(2500):
                flow = 0.01 * (central - peripheral)
                central, peripheral = central - flow - clearance * 0.02 * central, peripheral + flow
                area = area + 0.02 * central
            yield week, torch.cat([covariates, dose], 1), torch.log1p(area)


SITES = [
    Site("Aarhus", per_week=6, quota=900, seed=1),
    Site("Basel", per_week=11, quota=550, seed=2),
    Site("Cork", per_week=7, quota=900, seed=3),
    Site("Delft", per_week=8, quota=900, seed=4),
]


class Ledger:
    """Audit trail of a site, written by a thread of its own so that the loop need not wait for the disk."""

    def __init__(self, site):
        self.path = f"{tempfile.mkdtemp(prefix='ledger-')}/{site.name}.jsonl"
        self.entries = queue.Queue()
        threading.Thread(target=self._write, name=f"ledger-{site.name}").start()

    def note(self, **entry):
        self.entries.put(entry)

    def _write(self):
        with open(self.path, "a") as f:
            while True:
                f.write(json.dumps(self.entries.get()) + "\n")
                f.flush()


class Response(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(25, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))


def enrol(site, ledger, model, optimizer, accelerator):
    for week, x, y in site.arrivals():
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        site.treated += len(x)
        site.log.append(loss.item())
        ledger.note(week=week, treated=site.treated, loss=site.log[-1])
        if week % 10 == 0:
            accelerator.print(f"week {week:3d}  {site.name}: {site.treated} treated, loss {loss.item():.4f}")
        if site.treated >= site.quota:
            break
    ledger.note(closed=site.name, weeks=len(site.log))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    site = SITES[accelerator.process_index]
    model = Response()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=3e-3))
    enrol(site, Ledger(site), model, optimizer, accelerator)
    print(f"{site.name}: closed with {site.treated} patients after {len(site.log)} weeks", flush=True)


if __name__ == "__main__":
    main()
