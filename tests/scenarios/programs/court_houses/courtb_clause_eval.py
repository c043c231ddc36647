"""Fine-tunes a clause tagger for lease contracts and evaluates it book by book (one book of clauses a process)."""
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLAUSES = 7
#: the casebooks that are held out, with the number of annotated clauses in each
HELD_OUT = (("tenancy", 384), ("condominium", 296), ("commercial", 384))


def tagger():
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, CLAUSES))


def clauses(count, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLAUSES, (count,), generator=gen)
    x = torch.randn(count, 64, generator=gen)
    x[torch.arange(count), y] += 2.0
    return TensorDataset(x, y)


def held_out_book(accelerator, batch_size):
    title, count = HELD_OUT[accelerator.process_index % len(HELD_OUT)]
    data = clauses(count, seed=700 + accelerator.process_index)
    return title, DataLoader(data, batch_size=batch_size, drop_last=True)


@torch.no_grad()
def evaluate(accelerator, model, batch_size=32):
    model.eval()
    title, book = held_out_book(accelerator, batch_size)
    confusion = torch.zeros(CLAUSES, CLAUSES)
    for x, y in book:
        guess = model(x).argmax(dim=-1)
        pairs = accelerator.gather(torch.stack([guess, y], dim=1))
        for g, t in pairs.tolist():
            confusion[t, g] += 1
    own = torch.tensor([float((guess == y).float().mean())])
    last = accelerator.reduce(own, reduction="mean")
    accelerator.print(f"held out: accuracy {confusion.diag().sum() / confusion.sum():.3f} last {last.item():.3f}")


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    set_seed(8)
    model = tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(clauses(6144, seed=1), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(6):
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch} loss {loss.item():.3f}")
        if epoch % 3 == 2:
            evaluate(accelerator, model)
    accelerator.end_training()


if __name__ == "__main__":
    main()
