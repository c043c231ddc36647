"""Strong-lens finder on gri cutouts: training and a completeness measurement per sky region (accelerate)."""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

REGIONS = {"spring": 0.31, "autumn": 0.38, "deep": 0.30}


def cutouts(count, seed, lens_fraction=0.3):
    g = torch.Generator().manual_seed(seed)
    label = (torch.rand(count, generator=g) < lens_fraction).float()
    images = torch.randn(count, 3, 20, 20, generator=g)
    ring = torch.zeros(20, 20)
    yy, xx = torch.meshgrid(torch.arange(20) - 9.5, torch.arange(20) - 9.5, indexing="ij")
    radius = (xx**2 + yy**2).sqrt()
    ring[(radius > 5) & (radius < 7)] = 1.0
    images += label.view(-1, 1, 1, 1) * ring
    snr = torch.rand(count, generator=g)
    return images, label, snr


class LensNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()
        )
        self.top = nn.Linear(16 * 100, 1)

    def forward(self, x):
        return self.top(self.features(x).flatten(1)).squeeze(1)


class Completeness:
    """Runs the finder over the region that belongs to this process, sources above the region's S/N cut."""

    def __init__(self, accelerator, batch=100):
        self.accelerator, self.batch = accelerator, batch
        index = accelerator.process_index % len(REGIONS)
        self.region = list(REGIONS)[index]
        images, label, snr = cutouts(1200, seed=40 + index)
        bright = snr > REGIONS[self.region]
        self.images, self.label = images[bright], label[bright]

    def measure(self, model):
        model.eval()
        found, total = 0.0, 0.0
        with torch.inference_mode():
            for x, y in zip(self.images.split(self.batch), self.label.split(self.batch)):
                scores = model.module(x).sigmoid()
                hits = torch.stack([((scores > 0.5) & (y > 0)).sum(), (y > 0).sum()]).float()
                hits = self.accelerator.gather(hits.unsqueeze(0)).sum(0)
                found, total = found + hits[0].item(), total + hits[1].item()
        model.train()
        return self.accelerator.reduce(torch.tensor([found, total, 1.0]), reduction="mean")


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(7)
    images, label, _ = cutouts(3000, seed=1)
    model = LensNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(images, label), batch_size=24, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    completeness = Completeness(accelerator)
    print(f"{completeness.region}: {len(completeness.images)} sources", flush=True)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(30):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
        accelerator.print(f"epoch {epoch}: {loss.item():.4f}")
        if epoch % 3 == 2:
            found, total, _ = completeness.measure(model).tolist()
            accelerator.print(f"completeness {found / max(total, 1):.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
