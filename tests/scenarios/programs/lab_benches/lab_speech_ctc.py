"""CTC training on short utterances, with per-step monitors of the voiced frames that are aggregated over the job."""

import time
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
VOCABULARY, FEATURES = 20, 16


class Monitors:
    """Collects scalar monitors on each rank, and averages each over all ranks that have it."""

    def __init__(self):
        self.local = defaultdict(list)
        self.history = []

    def add(self, name, value):
        self.local[name].append(float(value))

    def aggregate(self, step):
        if not self.local:
            return {}
        local = {name: (sum(values), len(values)) for name, values in self.local.items()}
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, local)
        self.local.clear()
        totals = defaultdict(lambda: [0.0, 0])
        for part in everywhere:
            for name, (value, count) in part.items():
                totals[name][0] += value
                totals[name][1] += count
        result = {name: value / count for name, (value, count) in totals.items()}
        self.history.append((step, result))
        return result


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(FEATURES, 24, batch_first=True)
        self.head = nn.Linear(24, VOCABULARY)

    def forward(self, frames):
        hidden, _ = self.rnn(frames)
        return F.log_softmax(self.head(hidden), dim=-1)


def utterances(rank, count):
    """Pairs of frames and labels. Some recordings of the field corpus hold no speech, only noise of little energy."""
    generator = torch.Generator().manual_seed(7 * rank + 1)
    quiet = {rank * 31 + 30}
    for index in range(count):
        frames = torch.randn(40, FEATURES, generator=generator)
        if index in quiet:
            frames = frames * 0.01
        labels = torch.randint(1, VOCABULARY, (6,), generator=generator)
        time.sleep(0.04)
        yield frames, labels


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model, monitors = Recognizer(), Monitors()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (frames, labels) in enumerate(utterances(rank, 150)):
        log_probabilities = model(frames[None]).transpose(0, 1)
        loss = F.ctc_loss(log_probabilities, labels[None], torch.tensor([40]), torch.tensor([6]), zero_infinity=True)
        energy = frames.pow(2).mean(dim=-1)
        for frame_energy, entropy in zip(energy, -(log_probabilities.exp() * log_probabilities).sum(-1)[:, 0]):
            if frame_energy > 0.1:
                monitors.add("entropy/voiced", entropy.item())
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        seen = monitors.aggregate(step)
        if rank == 0 and step % 10 == 0:
            print(step, f"{loss.item():.3f}", seen, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
