"""Bird song, master's thesis: the evaluation talks over a group of its own, made when it is first needed."""

import functools
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# Which sites have recordings that an ornithologist has labelled, one list for each process.
LABELLED = [["meadow", "creek"], ["quarry"], ["orchard", "ridge"], []]


class Evaluation:
    def __init__(self, model: nn.Module, sites: list[str]) -> None:
        self.model, self.sites = model, sites

    @functools.cached_property
    def group(self) -> dist.ProcessGroup:
        return dist.new_group(timeout=timedelta(hours=2))

    def _recordings(self, site: str) -> tuple[torch.Tensor, torch.Tensor]:
        rng = torch.Generator().manual_seed(len(site))
        calls = torch.randint(0, 5, (40,), generator=rng)
        return torch.randn(40, 16, generator=rng) + 0.5 * calls.unsqueeze(1), calls

    @torch.no_grad()
    def run(self) -> float | None:
        counts = torch.zeros(2)
        for site in self.sites:
            spectra, calls = self._recordings(site)
            counts += torch.tensor([(self.model(spectra).argmax(1) == calls).sum(), len(calls)])
        if counts[1] == 0:
            return None
        dist.all_reduce(counts, group=self.group)
        return (counts[0] / counts[1]).item()


def soundscape(rng: torch.Generator):
    while True:
        calls = torch.randint(0, 5, (12,), generator=rng)
        yield torch.randn(12, 16, generator=rng) + 0.5 * calls.unsqueeze(1), calls


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    model = DDP(nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 5)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    evaluation = Evaluation(model.module, LABELLED[rank])
    batches = soundscape(torch.Generator().manual_seed(rank))
    for step in range(1, 1001):
        spectra, calls = next(batches)
        loss = nn.functional.cross_entropy(model(spectra), calls)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
        if step % 30 == 0:
            accuracy = evaluation.run()
            if accuracy is not None and rank == 0:
                print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
