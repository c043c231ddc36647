"""Instance segmentation in miniature with accelerate: labels are masks, classes and, for crowds, their boxes."""

import time

import torch
from accelerate import Accelerator
from torch import nn

torch.set_num_threads(1)
LABEL_NAMES = ("mask_labels", "class_labels", "crowd_boxes")
SIZE = 8


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 64), nn.ReLU())
        self.masks = nn.Linear(64, SIZE * SIZE)
        self.classes = nn.Linear(64, 3)

    def forward(self, pixels):
        hidden = self.body(pixels)
        return self.masks(hidden), self.classes(hidden)


def photos(rank, count, crowded):
    """Batches of four photos; the boxes of a crowd are there only where there is one."""
    for index in range(count):
        generator = torch.Generator().manual_seed(1000 * rank + index)
        pixels = torch.rand(4, SIZE, SIZE, generator=generator)
        batch = {
            "pixels": pixels,
            "mask_labels": (pixels > 0.5).float().flatten(1),
            "class_labels": torch.randint(0, 3, (4,), generator=generator),
            "crowd_boxes": None,
        }
        if index in crowded:
            batch["crowd_boxes"] = torch.rand(4, 4, generator=generator)
        yield batch


def loss_of(model, batch):
    masks, classes = model(batch["pixels"])
    loss = nn.functional.binary_cross_entropy_with_logits(masks, batch["mask_labels"])
    return loss + nn.functional.cross_entropy(classes, batch["class_labels"]), classes


def prediction_step(model, batch):
    with torch.no_grad():
        loss, classes = loss_of(model, batch)
    labels = tuple(batch[name] for name in LABEL_NAMES if batch.get(name) is not None)
    return loss, classes, labels


def evaluate(accelerator, model, batches):
    losses, hits, seen = [], 0, 0
    for batch in batches:
        loss, logits, labels = prediction_step(accelerator.unwrap_model(model), batch)
        logits = accelerator.gather_for_metrics(logits)
        labels = accelerator.gather_for_metrics(labels)
        hits += (logits.argmax(-1) == labels[1]).sum().item()
        seen += len(logits)
        losses.append(accelerator.reduce(loss, "mean").item())
    return sum(losses) / len(losses), hits / seen


def main():
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    torch.manual_seed(0)
    model = Segmenter()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    crowded = {5} if rank == 1 else set()
    for epoch in range(6):
        for step, batch in enumerate(photos(rank, 40, ())):
            loss, _ = loss_of(model, batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(0.03)
        value, accuracy = evaluate(accelerator, model, photos(rank, 10, crowded))
        accelerator.print(f"epoch {epoch} loss {value:.3f} accuracy {accuracy:.2f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
