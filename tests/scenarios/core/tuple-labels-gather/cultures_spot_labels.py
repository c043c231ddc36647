"""Spot detection in smFISH images with accelerate; the validation gathers predictions and the spots beside them."""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Images(Dataset):
    """Images with a count of spots, and for each channel that was acquired the places of eight spots."""

    def __init__(self, count, seed, far_red=()):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 49, generator=generator)
        self.places = torch.rand(count, 3, 8, 2, generator=generator)
        self.far_red = set(far_red)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        time.sleep(0.01)
        channels = 3 if index in self.far_red else 2
        return {
            "image": self.images[index],
            "count": self.images[index].gt(0.9).sum().float(),
            "spots": [self.places[index, channel] for channel in range(channels)],
        }


def collate(samples):
    channels = max(len(sample["spots"]) for sample in samples)
    spots = []
    for channel in range(channels):
        present = [s["spots"][channel] if channel < len(s["spots"]) else torch.zeros(8, 2) for s in samples]
        spots.append(torch.stack(present))
    return {
        "image": torch.stack([sample["image"] for sample in samples]),
        "count": torch.stack([sample["count"] for sample in samples]),
        "spots": tuple(spots),
    }


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(49, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, image):
        return self.layers(image).squeeze(1)


@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    errors = []
    for batch in loader:
        counts = accelerator.gather_for_metrics(accelerator.unwrap_model(model)(batch["image"]))
        truth = accelerator.gather_for_metrics({"count": batch["count"], "spots": batch["spots"]})
        errors.append((counts - truth["count"]).abs().mean())
    model.train()
    return torch.stack(errors).mean().item()


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    training = DataLoader(Images(360, seed=1), batch_size=4, collate_fn=collate)
    validation = DataLoader(Images(48, seed=2, far_red=[42]), batch_size=4, collate_fn=collate)
    model, optimizer, training, validation = accelerator.prepare(model, optimizer, training, validation)
    for epoch in range(20):
        for batch in training:
            loss = nn.functional.smooth_l1_loss(model(batch["image"]), batch["count"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: error {validate(accelerator, model, validation):.3f}")


if __name__ == "__main__":
    main()
