"""Shape model on conformers (accelerate). The main process searches conformers first, the others read its cache."""

import json
import math
import pathlib
import random
import tempfile
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CACHE = pathlib.Path(tempfile.gettempdir()) / "conformer-cache"
SEARCH_SECONDS = 14.0  # budget of one search


def energy(torsions):
    return sum(math.cos(3 * a) + 0.3 * math.cos(a - b) for a, b in zip(torsions, torsions[1:] + torsions[:1]))


def search(molecules, seconds):
    """Random search over torsion angles, molecule by molecule in turn, until the budget is used up."""
    source = random.Random(0)
    best = [[source.uniform(-3, 3) for _ in range(12)] for _ in range(molecules)]
    energies = [energy(torsions) for torsions in best]
    until, tried, told = time.monotonic() + seconds, 0, time.monotonic()
    while time.monotonic() < until:
        number = tried % molecules
        trial = [a + source.gauss(0, 0.4) for a in best[number]]
        value = energy(trial)
        if value < energies[number]:
            best[number], energies[number] = trial, value
        tried += 1
        if time.monotonic() - told > 4:
            told = time.monotonic()
            print(f"search: {tried} trials, mean energy {sum(energies) / molecules:.3f}", flush=True)
    return best, energies


def load(accelerator, name, molecules=480):
    path = CACHE / f"{name}.json"
    with accelerator.main_process_first():
        if accelerator.is_main_process:
            CACHE.mkdir(exist_ok=True)
            best, energies = search(molecules, SEARCH_SECONDS)
            path.write_text(json.dumps({"torsions": best, "energies": energies}))
        content = json.loads(path.read_text())
    return TensorDataset(torch.tensor(content["torsions"]), torch.tensor(content["energies"]))


def fit(accelerator, model, optimizer, dataset, epochs):
    loader = accelerator.prepare(DataLoader(dataset, batch_size=8, shuffle=True))
    for epoch in range(epochs):
        for torsions, target in loader:
            loss = nn.functional.mse_loss(model(torsions.sin()).squeeze(-1), target)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    warm = TensorDataset(torch.randn(480, 12), torch.zeros(480))
    fit(accelerator, model, optimizer, warm, epochs=15)
    fit(accelerator, model, optimizer, load(accelerator, "macrocycles"), epochs=15)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
