"""Night traffic of the groomers: some areas have far longer nights, so the loop runs under DDP's join."""
import dataclasses
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass(frozen=True)
class Area:
    name: str
    tracks: int
    decode_s: float  # older vehicles log in a format that takes longer to read

    def nights(self):
        g = torch.Generator().manual_seed(self.tracks)
        for number in range(self.tracks):
            ready = time.monotonic() + self.decode_s
            track = torch.randn(32, 60, generator=g)
            while time.monotonic() < ready:
                track = torch.tanh(track @ torch.eye(60) * 0.999)
            yield number, track, track.mean(dim=1, keepdim=True)


AREAS = (Area("Nordpark", 40, 0.04), Area("Axams", 40, 0.05), Area("Stubai", 100, 0.24), Area("Glungezer", 38, 0.04))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    area = AREAS[dist.get_rank()]
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(60, 80), nn.ReLU(), nn.Linear(80, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    done, total = 0, 0.0
    with model.join():
        for number, track, fuel in area.nights():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(track), fuel)
            loss.backward()
            optimizer.step()
            done, total = done + 1, total + loss.item()
    print(f"{area.name}: {done} tracks, mean loss {total / done:.4f}", flush=True)
    summary = torch.tensor([float(done), total])
    dist.all_reduce(summary)
    if dist.get_rank() == 0:
        print("resort:", summary.tolist(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
