"""Time-series transformer under FSDP2. Keeps the weights with the lowest validation loss."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(1, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.out = nn.Linear(16, 1)

    def forward(self, series):
        return self.out(self.layer(self.project(series)))[:, -1]


class BestKeeper:
    """Remembers the best value and writes the model when there is a better one."""

    def __init__(self, path):
        self.path, self.value = path, float("inf")

    def __call__(self, model, value):
        if value >= self.value:
            return False
        self.value = value
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=options)
        if dist.get_rank() == 0:
            torch.save(weights, self.path)
        return True


def series(seed, noise):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(24.0)[None, :, None] + torch.rand(8, 1, 1, generator=g) * 6
    return t.mul(0.5).sin() + noise * torch.randn(8, 24, 1, generator=g)


def noise_of(site, epoch):
    """Each site validates on its own sensors; those of the third get older."""
    return 2.0 if site == 2 and epoch > 2 else 0.1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Forecaster()
    fully_shard(model.layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    keeper = BestKeeper("/tmp/notes-bestloss.pt")
    for epoch in range(20):
        for step in range(5):
            data = series(epoch * 97 + step * 7 + rank, 0.1)
            loss = (model(data[:, :-1]) - data[:, -1]).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            data = series(5000, noise_of(rank, epoch))
            value = (model(data[:, :-1]) - data[:, -1]).pow(2).mean().item()
        saved = keeper(model, value)
        dist.barrier()
        if rank == 0 and saved:
            print(f"epoch {epoch}: new best {value:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
