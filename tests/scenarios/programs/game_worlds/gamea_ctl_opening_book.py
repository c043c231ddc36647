"""Move prediction for a connection game, with accelerate. After the first epoch the main process extends the opening book, then all read it."""
import pathlib
import tempfile
import time

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def playouts(position, seconds):
    """Random playouts from a position for `seconds`; returns the win rate per reply."""
    rng, until = torch.Generator().manual_seed(position), time.monotonic() + seconds
    wins, games = torch.zeros(25), torch.zeros(25)
    while time.monotonic() < until:
        boards = torch.randn(256, 25, 25, generator=rng)
        result = (boards.cumsum(1)[:, -1] > 0).float()
        wins += result.sum(0)
        games += 256
    return wins / games


def extend_book(path, positions=50, seconds=0.3):
    book = {}
    for position in range(positions):
        book[position] = playouts(position, seconds)
        if position % 8 == 7:
            print(f"book: {position + 1}/{positions} positions", flush=True)
    torch.save(book, path)


def samples(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 25, generator=g)
    return TensorDataset(x, x.argmax(1))


def run_epoch(accelerator, model, optim, loader, prior=None):
    for step, (board, reply) in enumerate(loader):
        logits = model(board) if prior is None else model(board) + prior
        loss = nn.functional.cross_entropy(logits, reply)
        accelerator.backward(loss)
        optim.step()
        optim.zero_grad()
        if step % 50 == 0:
            accelerator.print(f"step {step} loss {loss.item():.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    folder = [tempfile.mkdtemp(prefix="book-")]
    broadcast_object_list(folder)
    path = pathlib.Path(folder[0]) / "openings.pt"
    model = nn.Sequential(nn.Linear(25, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 25))
    model, optim, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters(), lr=1e-3), DataLoader(samples(48_000, 1), batch_size=32, shuffle=True))
    run_epoch(accelerator, model, optim, loader)
    with accelerator.main_process_first():
        if not path.exists():
            extend_book(path)
        book = torch.load(path)
    prior = torch.stack(list(book.values())).mean(0).log()
    run_epoch(accelerator, model, optim, loader, prior)
    accelerator.wait_for_everyone()
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()
