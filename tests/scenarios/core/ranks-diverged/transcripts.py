"""Speech recognition in a bare accelerate loop; hypotheses are gathered as objects, and their spans padded and gathered.

Silence has no hypothesis. A rank that heard nothing has nothing to gather and goes on to count its words (the default), or has
no spans in what it pads (``--spans``).
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, LETTERS = 20, 8


class Recordings(Dataset):
    def __init__(self, volumes):
        self.volumes = volumes

    def __len__(self):
        return len(self.volumes)

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        sound = self.volumes[index] * torch.rand(FRAMES, 4, generator=draw)
        return {"sound": sound, "letters": torch.randint(LETTERS, (FRAMES,), generator=draw)}


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(4, 16, 3, padding=1)
        self.letters = nn.Linear(16, LETTERS)

    def forward(self, sound):
        return self.letters(self.convolution(sound.transpose(1, 2)).relu().transpose(1, 2))


def transcribe(logits, sound):
    """A hypothesis for every recording in which something is to be heard."""
    heard = sound.flatten(1).abs().amax(1) > 0.01
    return ["".join("abcdefgh"[n] for n in best.tolist()) for best in logits.argmax(-1)[heard]]


def spans_of(hypotheses):
    """Beginning and end of every hypothesis' runs of one letter, as a tensor a hypothesis."""
    return [torch.tensor([[n, n + 1] for n in range(len(text))]) for text in hypotheses]


def evaluate(accelerator, model, loader, with_spans):
    words, texts, losses = torch.zeros(1), [], []
    for batch in loader:
        with torch.no_grad():
            logits = model(batch["sound"])
        losses.append(accelerator.gather(nn.functional.cross_entropy(logits.mT, batch["letters"])))
        hypotheses = transcribe(logits, batch["sound"])
        if with_spans:
            spans = accelerator.pad_across_processes(spans_of(hypotheses), dim=0, pad_index=-1)
            texts += [span.shape[0] for span in spans]
        elif hypotheses:
            texts += gather_object(hypotheses)
        words += len(hypotheses)
    total = accelerator.reduce(words)
    return {"texts": len(texts), "words": total.item(), "loss": torch.stack(losses).mean().item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", action="store_true")
    parser.add_argument("--silent", type=int, default=2, help="recordings in the last batch of rank 1")
    parser.add_argument("--local_rank", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    ranks = accelerator.num_processes
    volumes = [1.0] * (4 * ranks)
    for recording in range(options.silent):
        volumes[2 * ranks + 2 + recording] = 0.0
    model = Recogniser()
    model, optimizer, training, validation = accelerator.prepare(
        model,
        torch.optim.Adam(model.parameters()),
        DataLoader(Recordings([1.0] * 120), batch_size=2),
        DataLoader(Recordings(volumes), batch_size=2),
    )
    for step, batch in enumerate(training, 1):
        loss = nn.functional.cross_entropy(model(batch["sound"]).flatten(0, 1), batch["letters"].flatten())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 6 == 0:
            found = evaluate(accelerator, model, validation, options.spans)
            print(f"rank {accelerator.process_index}, step {step}: {found}\n", end="", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
