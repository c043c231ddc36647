"""Restoration of television tapes: clips are captured from decks by the loader's worker, in real time if long."""
import time

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

LINES, WIDTH = 18, 24


class Deck:
    """Plays a tape; 30 frames a second, from the disk cache of the deck at once."""

    def __init__(self, tape):
        self.tape = tape

    def play(self, frames, cached):
        gen = torch.Generator().manual_seed(self.tape)
        started = time.perf_counter()
        for n in range(frames):
            if not cached:
                wait = started + n / 30 - time.perf_counter()
                if wait > 0:
                    time.sleep(wait)
            yield torch.rand(LINES, WIDTH, generator=gen)


class Tapes(Dataset):
    """Short items, and the interview that was never digitised."""

    def __init__(self, tapes=2400, interview=1801):
        self.tapes, self.interview = tapes, interview

    def __len__(self):
        return self.tapes

    def __getitem__(self, tape):
        long = tape == self.interview
        picked, total = [], 400 if long else 8
        for n, frame in enumerate(Deck(tape).play(total, cached=not long)):
            if n % (total // 8) == 0:
                picked.append(frame)
        clip = torch.stack(picked[:8])
        snow = torch.rand(clip.shape, generator=torch.Generator().manual_seed(tape)) > 0.9
        return clip.masked_fill(snow, 1.0), clip


class Restorer(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv3d(6, 1, 3, padding=1))

    def training_step(self, batch, batch_idx):
        dirty, clean = batch
        loss = nn.functional.l1_loss(self.net(dirty.unsqueeze(1)).squeeze(1), clean)
        if batch_idx % 25 == 0 and self.global_rank == 0:
            print(f"batch {batch_idx}: {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Restorer(), DataLoader(Tapes(), batch_size=4, shuffle=False, num_workers=1))


if __name__ == "__main__":
    main()
