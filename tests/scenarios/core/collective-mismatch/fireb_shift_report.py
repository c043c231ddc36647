"""Dispatch load per shift with Lightning: three control rooms, a report over all of them after each shift."""
import os

import lightning as L
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

ROOMS = ("alpha", "bravo", "charlie")
# what the first messages of a shift are about, as typed in by the rooms
OPENINGS = {
    "alpha": ["acres", "acres", "causes", "acres"],
    "bravo": ["acres", "acres", "acres"],
    "charlie": ["acres"],
}


class Messages(IterableDataset):
    def __init__(self, room, per_shift=960):
        self.room, self.per_shift, self.shift = room, per_shift, 0

    def __iter__(self):
        opening = OPENINGS[self.room]
        first = opening[self.shift % len(opening)]
        generator = torch.Generator().manual_seed(self.shift)
        self.shift += 1
        for number in range(self.per_shift):
            about = first if number == 0 else ("acres", "causes")[number % 2]
            features = torch.randn(15, generator=generator)
            yield {"features": features, "load": features[:4].sum().reshape(1), "about": about}


class LoadModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(15, 48), nn.ReLU(), nn.Linear(48, 1))
        self.report = {}

    def training_step(self, batch, batch_idx):
        predicted = self.net(batch["features"])
        for about, value in zip(batch["about"], predicted.detach().flatten().tolist()):
            self.report.setdefault(about, []).append(value)
        return nn.functional.mse_loss(predicted, batch["load"])

    def on_train_epoch_end(self):
        lines = []
        for about, values in self.report.items():
            if about == "acres":
                total = torch.tensor([sum(values), float(len(values))])
                dist.all_reduce(total)
                lines.append(f"acres {total[0] / total[1]:.3f}")
            else:
                rooms = [None] * self.trainer.world_size
                dist.all_gather_object(rooms, values[-3:])
                lines.append(f"causes {sum(len(r) for r in rooms)}")
        self.report = {}
        if self.trainer.is_global_zero:
            print(f"shift {self.current_epoch}: " + ", ".join(lines), flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    L.seed_everything(2)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=len(ROOMS),
        strategy="ddp",
        max_epochs=60,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    room = ROOMS[int(os.environ["RANK"])]
    trainer.fit(LoadModel(), DataLoader(Messages(room), batch_size=8))


if __name__ == "__main__":
    main()
