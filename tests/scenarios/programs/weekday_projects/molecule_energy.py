"""Energies and forces of molecules. A step whose gradient explodes is not used."""

import torch
import torch.distributed as dist


def molecules(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank + 10 * step)
    positions = torch.randn(12, 3, 3, generator=generator)
    if (rank, step) == (2, 9):
        positions[0, 1] = positions[0, 0] + 1e-9
    distances = torch.stack([(positions[:, i] - positions[:, j]).norm(dim=1) for i, j in ((0, 1), (0, 2), (1, 2))], 1)
    return distances, (1 / distances.pow(6) - 1 / distances.pow(3)).sum(1, keepdim=True)


class Potential(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 24), torch.nn.Softplus(), torch.nn.Linear(24, 1))

    def forward(self, distances: torch.Tensor) -> torch.Tensor:
        return self.net(1 / (distances + 0.1))


def train_step(model: Potential, optimizer: torch.optim.Optimizer, batch) -> float | None:
    distances, energy = batch
    loss = torch.nn.functional.mse_loss(model(distances), energy)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not norm.isfinite():
        return None
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    optimizer.step()
    tracked = loss.detach().clone()
    dist.broadcast(tracked, src=0)
    return tracked.item()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Potential()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    skipped = 0
    for step in range(50):
        loss = train_step(model, optimizer, molecules(rank, step))
        if loss is None:
            skipped += 1
        elif rank == 0 and step % 10 == 0:
            print(f"{step}: {loss:.4f}", flush=True)
    dist.barrier()
    print(f"[{rank}] {skipped} steps were not used", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
