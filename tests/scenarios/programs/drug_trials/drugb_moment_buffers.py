"""Joint potency/solubility model: label moments are pooled over sites through one group per assay."""
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn

ASSAYS = ("potency", "solubility")


class MomentPool:
    """Collects label values and averages their moments over all sites whenever it is flushed."""

    def __init__(self, assays):
        self.groups = {assay: dist.new_group() for assay in assays}
        self.values = defaultdict(list)
        self.moments = {assay: torch.tensor([0.0, 1.0]) for assay in assays}

    def add(self, assay: str, values: torch.Tensor):
        self.values[assay].append(values)

    def flush(self):
        sizes = {assay: sum(len(v) for v in parts) for assay, parts in self.values.items()}
        for assay in sorted(sizes, key=sizes.get, reverse=True):
            labels = torch.cat(self.values[assay])
            sums = torch.stack([torch.tensor(float(len(labels))), labels.sum(), labels.square().sum()])
            dist.all_reduce(sums, group=self.groups[assay])
            mean = sums[1] / sums[0]
            self.moments[assay] = torch.stack([mean, (sums[2] / sums[0] - mean**2).clamp_min(1e-6).sqrt()])
        self.values.clear()

    def normalise(self, assay: str, values: torch.Tensor):
        mean, deviation = self.moments[assay]
        return (values - mean) / deviation


class TwoHeads(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, width), nn.ReLU())
        self.heads = nn.ModuleDict({assay: nn.Linear(width, 1) for assay in ASSAYS})

    def forward(self, x, assay):
        return self.heads[assay](self.trunk(x)).squeeze(-1)


def plate(site: int, step: int):
    """Wells of one plate in the layout that the site has at that time."""
    wells = {"potency": 240, "solubility": 160}
    if site == 0 and step >= 70:
        wells["solubility"] = 320
    for assay, count in wells.items():
        x = torch.stack([torch.sin(torch.arange(20) * (0.01 * well + 0.1) + step) for well in range(count)])
        yield assay, x, x[:, :4].sum(1) + (5.0 if assay == "potency" else -3.0)


def share_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(9)
    site = dist.get_rank()
    model, pool = TwoHeads(), MomentPool(ASSAYS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, 500):
        loss = 0.0
        for assay, x, y in plate(site, step):
            pool.add(assay, y)
            loss = loss + (model(x, assay) - pool.normalise(assay, y)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        share_gradients(model)
        optimizer.step()
        if step % 10 == 0:
            pool.flush()
            if site == 1:
                shown = {a: [round(float(v), 2) for v in m] for a, m in pool.moments.items()}
                print(f"plate {step} loss {float(loss.detach()):.3f} {shown}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
