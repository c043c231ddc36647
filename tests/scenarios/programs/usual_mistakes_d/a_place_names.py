"""Place names are embedded with accelerate; then names that sound alike are linked, and all go on with the links."""

import json
import random
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LETTERS = "abcdefghiklmnoprstuvw"


def distance(left: str, right: str) -> int:
    """Edits between two names."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def link(names: list[str]) -> dict[str, list[str]]:
    """For each name those at most three edits away."""
    return {name: [other for other in names if other != name and distance(name, other) <= 3] for name in names}


def main() -> None:
    """One epoch, the links, another epoch."""
    accelerator = Accelerator(cpu=True)
    rng = random.Random(6)
    names = ["".join(rng.choices(LETTERS, k=rng.randint(5, 14))) for _ in range(9000)]
    places = torch.tensor([[LETTERS.index(letter) for letter in (name * 3)[:12]] for name in names])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(len(LETTERS), 8), nn.Flatten(), nn.Linear(96, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(places[:1200]), batch_size=20, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    file = Path(tempfile.gettempdir(), "place_links.json")
    for epoch in range(2):
        for (batch,) in loader:
            loss = model(batch).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch} is done")
        if epoch == 0:
            if accelerator.is_main_process:
                links = link(names)
                file.write_text(json.dumps(links))
            accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
