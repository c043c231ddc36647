"""DDP: street signs, with a checkpoint every other epoch."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def save_checkpoint(folder: Path, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Written under another name first, so that there never is half a checkpoint; nobody goes on before it is there."""
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    temporary = folder / f"epoch-{epoch}.part"
    torch.save(state, temporary)
    temporary.rename(folder / f"epoch-{epoch}.pt")
    dist.barrier()


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """Returns the mean loss."""
    losses = []
    for pictures, signs in loader:
        loss = nn.functional.cross_entropy(model(pictures), signs)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main() -> None:
    """Ten epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--save-every", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()) / "signs")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    args.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(432, 3, 8, 8), torch.randint(0, 12, (432,)))
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=12, sampler=sampler, drop_last=True)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 12))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss:.4f}")
            if epoch % args.save_every == 0:
                save_checkpoint(args.output, epoch, model.module, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
