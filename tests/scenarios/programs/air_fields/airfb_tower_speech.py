"""Tower speech: a small CTC recogniser, trained with accelerate."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch import nn

logger = get_logger(__name__)
WORDS = ["<b>", "cleared", "land", "takeoff", "runway", "two", "seven", "left", "right", "wind", "contact", "ground"]


class TranscriptError(ValueError):
    """The transcript does not fit the audio."""


@dataclass
class Utterance:
    callsign: str
    features: torch.Tensor  # frames x 20
    words: torch.Tensor


class TowerTape:
    """Recordings of one tower position, cut at the push-to-talk key."""

    def __init__(self, position: int, hours: int, seed: int):
        self.generator = torch.Generator().manual_seed(seed * 31 + position)
        self.position, self.hours = position, hours

    def __iter__(self):
        for n in range(self.hours * 12):
            frames = 60
            spoken = int(torch.randint(4, 10, (1,), generator=self.generator))
            if self.position == 2 and n % 216 == 140:  # the relief reads back a whole route clearance
                spoken = 70
            signal = torch.randn(frames, 20, generator=self.generator)
            kernel = torch.hann_window(9)[None, None]
            for _ in range(120):  # radio: band limits and companding
                signal = torch.tanh(F.conv1d(signal.T[:, None], kernel, padding=4)[:, 0].T / 4.0)
            yield Utterance(f"SWR{n}", signal, torch.randint(1, len(WORDS), (spoken,), generator=self.generator))


def targets_of(utterance: Utterance):
    if len(utterance.words) > len(utterance.features):
        raise TranscriptError(f"{utterance.callsign}: {len(utterance.words)} words")
    return utterance.words[None], torch.tensor([len(utterance.words)])


class Recogniser(nn.Module):
    def __init__(self, hidden: int = 48):
        super().__init__()
        self.encoder = nn.GRU(20, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(WORDS))

    def forward(self, features):
        return self.out(self.encoder(features)[0]).log_softmax(-1)


def run_epoch(accelerator, model, optimizer, tape):
    total, odd = torch.zeros(1), []
    for utterance in tape:
        try:
            words, lengths = targets_of(utterance)
            logp = model(utterance.features[None]).transpose(0, 1)
            loss = F.ctc_loss(logp, words, torch.tensor([logp.shape[0]]), lengths, zero_infinity=True)
            accelerator.backward(loss)
        except TranscriptError as error:
            odd.append(str(error))
            continue
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total, odd


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(3)
    model, optimizer = Recogniser(), None
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(6):
        tape = TowerTape(accelerator.process_index, hours=18, seed=epoch)
        total, odd = run_epoch(accelerator, model, optimizer, tape)
        everyone = accelerator.gather(total)
        accelerator.print(f"epoch {epoch}: loss {everyone.mean().item():.3f}, {len(odd)} transcripts to review")


if __name__ == "__main__":
    main()
