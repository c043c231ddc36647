"""Transcription quality on the parliament channel (accelerate): beam search on whole sessions, one after another."""
import time

import torch
from accelerate import Accelerator
from torch import nn

LETTERS = 30


class Acoustic(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(40, 96, batch_first=True)
        self.out = nn.Linear(96, LETTERS)

    def forward(self, frames):
        return self.out(self.gru(frames)[0]).log_softmax(-1)


def beam(log_probs, width=8):
    """The best letters of a session, with a penalty for doubled ones."""
    beams = [(0.0, ())]
    for row in log_probs.tolist():
        best = sorted(range(LETTERS), key=row.__getitem__)[-width:]
        grown = [(score + row[c] - (0.5 if text and text[-1] == c else 0.0), text[-40:] + (c,)) for score, text in beams for c in best]
        beams = sorted(grown, reverse=True)[:width]
    return beams[0][1]


def sessions(process):
    """Committees are short, the plenary is not."""
    minutes = {0: [2, 2], 1: [2, 3], 2: None}[process]
    g = torch.Generator().manual_seed(process)
    if minutes is not None:
        for m in minutes:
            yield torch.randn(1, 60 * m, 40, generator=g)
        return
    began = time.monotonic()
    while time.monotonic() - began < 12:
        yield torch.randn(1, 200, 40, generator=g)


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Acoustic()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    g = torch.Generator().manual_seed(100 + accelerator.process_index)
    for part in range(2):
        for step in range(30):
            frames = torch.randn(4, 40, 40, generator=g)
            target = (frames[..., :6].sum(-1).abs() * 4).long() % LETTERS
            loss = nn.functional.nll_loss(model(frames).flatten(0, 1), target.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.03)
        accelerator.print(f"part {part}: {loss.item():.3f}")
        if part == 1:
            break
        net = accelerator.unwrap_model(model).eval()
        letters = done = 0
        with torch.no_grad():
            for frames in sessions(accelerator.process_index):
                letters += len(beam(net(frames)[0]))
                done += 1
                if done % 20 == 0:
                    print(f"[{accelerator.process_index}] {done} pieces", flush=True)
        net.train()
        totals = accelerator.reduce(torch.tensor([letters, done]), "sum")
        accelerator.print(f"{int(totals[1])} pieces, {int(totals[0])} letters")


if __name__ == "__main__":
    main()
