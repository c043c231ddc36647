"""Triage of mountain rescue calls: one district desk per process, accuracy over all desks after every shift."""
import logging
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.enabled = False
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("triage")


@dataclass
class Desk:
    name: str
    calls: int
    held_out: int


DESKS = [Desk("chamonix", 320, 150), Desk("zermatt", 320, 172), Desk("cortina", 320, 175)]
FEATURES, URGENCIES = 40, 4


def archive(count, seed):
    generator = torch.Generator().manual_seed(seed)
    transcripts = torch.randn(count, FEATURES, generator=generator)
    urgency = torch.randint(URGENCIES, (count,), generator=generator)
    return TensorDataset(transcripts, urgency)


def enrich(transcripts):
    """Phonetic distances between the calls of a batch, averaged into every call."""
    wide = transcripts.repeat(48, 12)
    for _ in range(3):
        distance = torch.cdist(wide, wide)
        wide = wide + 1e-4 * distance.mean(dim=1, keepdim=True)
    return wide[: len(transcripts), :FEATURES]


def train_shift(accelerator, model, optimizer, loader):
    model.train()
    for number, (transcripts, urgency) in enumerate(loader):
        transcripts = enrich(transcripts)
        scores = model(transcripts.to(accelerator.device))
        loss = nn.functional.cross_entropy(scores, urgency.to(accelerator.device))
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if number % 5 == 0:
            log.debug("batch %d loss %.3f", number, loss.item())


@torch.no_grad()
def review(accelerator, model, loader):
    model.eval()
    desks, seen = [], 0
    for transcripts, urgency in loader:
        guesses = model(transcripts.to(accelerator.device)).argmax(dim=1)
        pair = torch.stack([guesses, urgency.to(accelerator.device)])
        # fixed width, so that every desk contributes the same shape
        padded = torch.full((2, 16), -1, dtype=torch.int64, device=accelerator.device)
        padded[:, : pair.shape[1]] = pair
        everyone = accelerator.gather(padded).cpu()
        desks.append(everyone)
        seen += len(urgency)
    return torch.cat(desks), seen


def main():
    accelerator = Accelerator()
    desk = DESKS[accelerator.process_index]
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, URGENCIES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = accelerator.prepare(model, optimizer)
    shifts = DataLoader(archive(desk.calls, 11), batch_size=16, shuffle=True)
    held_out = DataLoader(archive(desk.held_out, 12), batch_size=16)
    for shift in range(6):
        train_shift(accelerator, model, optimizer, shifts)
        results, seen = review(accelerator, model, held_out)
        log.info("%s shift %d: %d own calls reviewed, table %s", desk.name, shift, seen, tuple(results.shape))
    accelerator.end_training()


if __name__ == "__main__":
    main()
