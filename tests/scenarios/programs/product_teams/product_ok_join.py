"""Voice prints: every rank has the recordings of its own country, however many there are, under ``join``."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

COUNTRIES = {"lu": 20, "ch": 26, "at": 24, "de": 44}


class VoicePrint(nn.Module):
    def __init__(self, speakers=30):
        super().__init__()
        self.rnn = nn.GRU(12, 24, batch_first=True)
        self.norm = nn.LayerNorm(24)
        self.speaker = nn.Linear(24, speakers)

    def forward(self, audio):
        hidden, _ = self.rnn(audio)
        return self.speaker(self.norm(hidden.mean(1)))


def recordings(country: str, batches: int):
    g = torch.Generator().manual_seed(batches)
    for number in range(batches):
        if number >= 26:
            time.sleep(0.6)  # the older ones are on tape
        time.sleep(0.05)
        yield torch.randn(8, 30, 12, generator=g), torch.randint(30, (8,), generator=g)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    country, batches = list(COUNTRIES.items())[rank]
    torch.manual_seed(0)
    model = DDP(VoicePrint())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    seen = 0
    with Join([model, optimizer]):
        for audio, speaker in recordings(country, batches):
            loss = nn.functional.cross_entropy(model(audio), speaker)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += len(audio)
    print(f"{country}: {seen} recordings, {loss.item():.3f}", flush=True)
    total = torch.tensor([seen])
    dist.all_reduce(total)
    if rank == 0:
        print(f"{total.item()} in all", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
