"""Leak detection from hydrophone clips of district metered areas (accelerate)."""
import time

import torch
from accelerate import Accelerator
from torch import nn

DISTRICTS = {
    "harbour": {"seed": 1, "leak_share": 0.30},
    "old-town": {"seed": 2, "leak_share": 0.0},
    "hillside": {"seed": 3, "leak_share": 0.18},
}
CLIP = 128


class District:
    def __init__(self, name, seed, leak_share):
        self.name = name
        self.gen = torch.Generator().manual_seed(seed)
        self.leak_share = leak_share

    def clips(self, count, surveyed=False):
        share = self.leak_share if surveyed else 0.25
        leak = (torch.rand(count, generator=self.gen) < share).long()
        noise = torch.randn(count, CLIP, generator=self.gen)
        tone = torch.sin(torch.arange(CLIP) * 0.7)
        return noise + leak[:, None] * tone, leak


class RecallMeter:
    """Collects confirmed leaks and the model's answers for them."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.reset()

    def reset(self):
        self.confirmed, self.found = [], []

    def update(self, answers, leak):
        for answer, truth in zip(answers.tolist(), leak.tolist()):
            if truth:
                self.confirmed.append(truth)
                self.found.append(int(answer == truth))

    def compute(self):
        counts = torch.tensor([float(sum(self.found)), float(len(self.confirmed))])
        parts = self.accelerator.gather(counts).view(-1, 2).sum(0)
        return (parts[0] / parts[1]).item()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 12, 9, stride=2)
        self.head = nn.Linear(12, 2)

    def forward(self, clip):
        return self.head(torch.relu(self.conv(clip.unsqueeze(1))).mean(2))


def survey(accelerator, model, district, meter):
    model.eval()
    meter.reset()
    with torch.no_grad():
        for _ in range(4):
            clip, leak = district.clips(32, surveyed=True)
            meter.update(accelerator.unwrap_model(model)(clip).argmax(1), leak)
    report = {"district": district.name, "clips": 128}
    if len(meter.confirmed) > 0:
        report["recall"] = meter.compute()
    return report


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(7)
    name = list(DISTRICTS)[accelerator.process_index]
    district = District(name, **DISTRICTS[name])
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    meter = RecallMeter(accelerator)
    criterion = nn.CrossEntropyLoss()

    for week in range(5):
        model.train()
        started = time.time()
        for _ in range(60):
            clip, leak = district.clips(64)
            optimizer.zero_grad()
            loss = criterion(model(clip), leak)
            accelerator.backward(loss)
            optimizer.step()
            time.sleep(0.03)
        report = survey(accelerator, model, district, meter)
        print(f"week {week} {report} {time.time() - started:.1f}s", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
