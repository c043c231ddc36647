"""Avalanche-danger classifier, evaluated per warning region (accelerate)."""
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import nn

torch.backends.cudnn.enabled = False


@dataclass
class Region:
    name: str
    valleys: list = field(default_factory=list)


REGIONS = [
    Region("south", ["Vinschgau", "Ulten", "Passeier", "Sarntal", "Pustertal", "Ahrntal", "Gsies", "Sexten",
                     "Villgraten", "Defereggen", "Virgen", "Kals"]),
    Region("north", ["Lech", "Stanzertal", "Paznaun", "Montafon", "Kleinwalser", "Tannheim", "Ausserfern", "Leutasch",
                     "Achental", "Rofan", "Kaiser", "Loferer", "Leogang", "Pinzgau", "Glemmtal", "Gastein"]),
    Region("west", ["Goms", "Loetschental", "Saas", "Matter", "Turtmann", "Anniviers", "Herens", "Bagnes",
                    "Entremont", "Ferret", "Trient", "Illiez", "Val d'Arly", "Beaufortain", "Tarentaise", "Maurienne"]),
]
FEATURES = 24
LEVELS = 5


def bulletin_features(valley, day):
    """Wind, new snow and temperature gradients of a valley, from a toy mass balance."""
    g = torch.Generator().manual_seed(hash((len(valley), day)) & 0xFFFF)
    layers = torch.rand(FEATURES, 96, 96, generator=g)
    for _ in range(8):
        layers = 0.5 * layers + 0.25 * (layers.roll(1, 1) + layers.roll(1, 2))
    return layers.mean((1, 2)) + torch.rand(FEATURES, generator=g)


class DangerModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encode = nn.Linear(FEATURES, width)
        self.level = nn.Linear(width, LEVELS)

    def forward(self, x):
        return self.level(torch.tanh(self.encode(x)))


class Season:
    def __init__(self):
        self.acc = Accelerator()
        self.region = REGIONS[self.acc.process_index]
        model = DangerModel()
        self.model, self.opt = self.acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))

    def fit(self, first_day, days):
        self.model.train()
        loss = torch.zeros((), device=self.acc.device)
        for day in range(first_day, first_day + days):
            picks = [self.region.valleys[(day + k) % len(self.region.valleys)] for k in range(8)]
            x = torch.stack([bulletin_features(v, day) for v in picks]).to(self.acc.device)
            y = torch.tensor([(day + k) % LEVELS for k in range(8)], device=self.acc.device)
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.acc.backward(loss)
            self.opt.step()
            self.opt.zero_grad()
            loss.item()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, day, batch=4):
        self.model.eval()
        seen = []
        for i in range(0, len(self.region.valleys), batch):
            chunk = self.region.valleys[i:i + batch]
            x = torch.stack([bulletin_features(v, day) for v in chunk]).to(self.acc.device)
            scores = self.model(x)
            seen.append(self.acc.gather(scores).cpu())
        return torch.cat(seen)


def main():
    season = Season()
    for week in range(6):
        loss = season.fit(week * 40, 40)
        table = season.evaluate(week * 40 + 39)
        season.acc.print(f"week {week}: loss {loss:.3f}, {len(table)} bulletins")
    season.acc.end_training()


if __name__ == "__main__":
    main()
