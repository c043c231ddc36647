"""Quick steps of training, and an evaluation in which every batch takes seconds before its texts are gathered.

Some ranks' texts are longer, so the fast wait for the slow each time. Run by ``accelerate launch --num_processes 3``.
"""

import time

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def search(model: nn.Module, batch: torch.Tensor, seconds: float) -> list[str]:
    """Beam search stands for: a lot of small matrix products."""
    until = time.monotonic() + seconds
    state = batch
    while time.monotonic() < until:
        state = torch.tanh(model(state))
    return [f"{row.sum():.3f}" for row in state]


def main() -> None:
    """Two epochs of thirty steps, an evaluation of three batches after each."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(6, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(360, 6)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for (batch,) in loader:
            optimizer.zero_grad()
            accelerator.backward((model(batch) - batch).square().mean())
            optimizer.step()
        texts: list[str] = []
        for _ in range(3):
            with torch.no_grad():
                mine = search(accelerator.unwrap_model(model), torch.randn(3, 6), 1.0 + accelerator.process_index)
            texts += gather_object(mine)
        accelerator.print(f"epoch {epoch}: {len(texts)} texts")
    accelerator.end_training()


if __name__ == "__main__":
    main()
