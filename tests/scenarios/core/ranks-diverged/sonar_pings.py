"""accelerate: echoes of a survey ship; each process streams its own lines of the survey and leaves out faint ones."""

from collections.abc import Iterator

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LINES = 12
PINGS = 64


class Pings(IterableDataset):
    """Pings of some survey lines whose echo is loud enough; line 7 went over soft mud."""

    def __init__(self, lines: list[int]) -> None:
        self.lines = lines

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for line in self.lines:
            random = torch.Generator().manual_seed(line)
            loudness = 0.1 if line == 7 else 1.0
            for _ in range(PINGS):
                echo = loudness * (0.5 + torch.rand(24, generator=random))
                if echo.max() > 0.5:
                    yield echo, echo.argmax().float() / 24


def main() -> None:
    """Three passes over the survey, with the mean loss of each."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    mine = list(range(LINES))[accelerator.process_index :: accelerator.num_processes]
    loader = DataLoader(Pings(mine), batch_size=8)
    net = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1))
    model, optimizer = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=1e-3))
    for turn in range(3):
        total, batches = 0.0, 0
        for echo, depth in loader:
            loss = (model(echo).squeeze(1) - depth).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
            batches += 1
        means = accelerator.gather(torch.tensor(total / batches))
        accelerator.print(f"pass {turn}: {means.mean().item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
