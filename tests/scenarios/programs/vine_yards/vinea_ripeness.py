"""Sugar content of grape clusters from field photos, with accelerate."""

import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

# photos per survey and slope: what the pickers brought home
SURVEYS = {"veraison": (40, 40, 40), "mid-august": (48, 48, 48), "september": (48, 24, 48), "harvest": (64, 64, 64)}


def photos(number, seed):
    g = torch.Generator().manual_seed(seed)
    pixels = torch.rand(number, 3, 32, 32, generator=g)
    brix = 14 + 10 * pixels[:, 0].mean(dim=(1, 2)) - 3 * pixels[:, 2].mean(dim=(1, 2))
    return TensorDataset(pixels, brix.unsqueeze(1))


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 12, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(12, 24, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(96, 1),
    )


class Survey:
    """The photos of one slope in one survey."""

    def __init__(self, accelerator, name):
        slope = accelerator.process_index
        self.name, self.accelerator = name, accelerator
        self.loader = DataLoader(photos(SURVEYS[name][slope], seed=100 + slope), batch_size=8)

    @torch.no_grad()
    def error(self, model):
        model.eval()
        errors = []
        for pixels, brix in self.loader:
            off = (model(pixels) - brix).abs().mean()
            errors.append(self.accelerator.gather(off).mean().item())
        model.train()
        return sum(errors) / len(errors)


def train(accelerator, model, optimizer, loader):
    total = 0.0
    for pixels, brix in loader:
        loss = torch.nn.functional.smooth_l1_loss(model(pixels), brix)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
        time.sleep(0.01)
    return total / len(loader)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(photos(960, seed=1), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for name in SURVEYS:
        loss = train(accelerator, model, optimizer, loader)
        error = Survey(accelerator, name).error(model)
        accelerator.print(f"{name}: loss {loss:.3f}, off by {error:.2f} degrees Brix", flush=True)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
