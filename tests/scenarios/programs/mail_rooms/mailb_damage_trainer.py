"""Grades damage pictures of parcels (none, dented, torn, wet) for the claims desk; every depot trains on its own camera."""
import logging
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

log = logging.getLogger("damage")
GRADES = 4
DEPOTS = ["Basel", "Chur", "Lugano"]
# detections of the belt camera that were corrected by hand: depot -> {picture: (top, bottom)}
CORRECTED = {"Basel": {101: (4, 60)}, "Chur": {233: (2, 58), 491: (31, 31)}, "Lugano": {77: (10, 64)}}


class BeltPictures(Dataset):
    def __init__(self, depot, size=960):
        self.size = size
        self.boxes = CORRECTED[depot]
        self.phase = 0.1 + 0.3 * DEPOTS.index(depot)

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        grid = torch.linspace(0, 6.28, 960)
        picture = torch.sin(grid[:, None] * (1 + i % 7) + self.phase) * torch.cos(grid[None] * (1 + i % 5))
        picture = F.avg_pool2d(picture[None], 15)
        return {"picture": picture, "box": torch.tensor(self.boxes.get(i, (0, 64))), "labels": torch.tensor(i % GRADES)}


def collate(samples):
    return {key: torch.stack([s[key] for s in samples]) for key in samples[0]}


class Grader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, width), nn.ReLU())
        self.head = nn.Linear(width, GRADES)

    def forward(self, picture, labels=None):
        logits = self.head(self.features(picture))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class DamageTrainer(Trainer):
    unreadable = 0

    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=8, collate_fn=self.data_collator, drop_last=True)

    def crop(self, inputs):
        crops = []
        for picture, (top, bottom) in zip(inputs["picture"], inputs["box"].tolist()):
            crops.append(F.interpolate(picture[None, :, top:bottom], size=(32, 32), mode="bilinear"))
        return {"picture": torch.cat(crops), "labels": inputs["labels"]}

    def training_step(self, model, inputs, num_items_in_batch=None):
        try:
            return super().training_step(model, self.crop(inputs), num_items_in_batch)
        except (RuntimeError, ValueError) as error:
            self.unreadable += 1
            log.debug("batch %d: %s", self.state.global_step, error)
            model.zero_grad()
            return torch.zeros(())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    args = TrainingArguments(
        output_dir="damage-out",
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        max_steps=110,
        learning_rate=1e-3,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = DamageTrainer(model=Grader(), args=args, train_dataset=BeltPictures(DEPOTS[rank]), data_collator=collate)
    trainer.train()
    log.info("%s: done, %d unreadable", DEPOTS[rank], trainer.unreadable)


if __name__ == "__main__":
    main()
