"""DDP: the risk of coming back within a month; each hospital's records stay with its own rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

FINDINGS = 20
ADMISSIONS = {"north": 488, "harbour": 492, "children": 410, "south": 484}


def admissions(name: str, seed: int) -> TensorDataset:
    """Findings at admission, and whether the patient came back."""
    generator = torch.Generator().manual_seed(seed)
    findings = torch.randn(ADMISSIONS[name], FINDINGS, generator=generator)
    return TensorDataset(findings, (findings[:, :3].sum(dim=1) > 1.0).float())


def accuracy(model: nn.Module, records: TensorDataset) -> torch.Tensor:
    """At this hospital."""
    findings, back = records.tensors
    with torch.no_grad():
        return ((model(findings).squeeze(1) > 0).float() == back).float().mean()


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    name = list(ADMISSIONS)[rank]
    records = admissions(name, seed=rank)
    loader = DataLoader(records, batch_size=16, shuffle=True, drop_last=True)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FINDINGS, 32), nn.ReLU(), nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(5):
        for findings, back in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(findings).squeeze(1), back)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        own = accuracy(network, records)
        shares = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(shares, own)
        if rank == 0:
            table = ", ".join(f"{who} {share.item():.1%}" for who, share in zip(ADMISSIONS, shares, strict=True))
            print(f"epoch {epoch}: {table}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
