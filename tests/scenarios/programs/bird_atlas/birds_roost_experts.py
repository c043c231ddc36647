"""Bat-and-bird roosts: clips are routed to the expert of their band, one expert per rank, by all_to_all_single."""

import os
import time
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 10
BANDS = [(0, 2), (2, 5), (5, 9), (9, 16)]  # kHz


def minute_of(roost: int, minute: int) -> list[float]:
    """Peak frequencies of the clips that are louder than the noise of that minute."""
    time.sleep(0.15)
    peaks = [(3.1 * clip + 1.7 * roost + 0.9 * minute) % 16 for clip in range(12)]
    noise = 60 if roost == 3 and minute == 9 else 20
    return [peak for clip, peak in enumerate(peaks) if 25 + (clip * 11) % 30 > noise]


def band_of(peak: float) -> int:
    return next(i for i, (low, high) in enumerate(BANDS) if low <= peak < high)


class BandExperts(nn.Module):
    """Sends each clip to the rank whose expert knows its band, and brings the answer back."""

    def __init__(self, device):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(WIDTH, 22), nn.ReLU(), nn.Linear(22, WIDTH)).to(device)

    def forward(self, clips: torch.Tensor, bands: list[int]) -> torch.Tensor:
        if not bands:
            return clips
        outgoing = [bands.count(band) for band in range(len(BANDS))]
        arriving = torch.empty(len(BANDS), dtype=torch.int64, device=clips.device)
        dist.all_to_all_single(arriving, torch.tensor(outgoing, device=clips.device))
        incoming = arriving.tolist()
        received = clips.new_empty(sum(incoming), WIDTH)
        dist.all_to_all_single(received, clips, incoming, outgoing)
        answers = self.expert(received)
        answers.square().sum().backward()
        returned = torch.empty_like(clips)
        dist.all_to_all_single(returned, answers.detach(), outgoing, incoming)
        return returned


class Gate(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH).to(device)

    def forward(self, x):
        return torch.sigmoid(self.mix(x)) * x


def sort_by_band(peaks: list[float], device) -> tuple[torch.Tensor, list[int]]:
    ordered = sorted(peaks)
    clips = torch.tensor(ordered, device=device).unsqueeze(1).expand(-1, WIDTH).contiguous()
    return clips, [band_of(peak) for peak in ordered]


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    experts, gate = BandExperts(device), Gate(device)
    optimizer = torch.optim.SGD([*experts.parameters(), *gate.parameters()], lr=0.01)
    clips_so_far = []
    for minute in range(24):
        clips, bands = sort_by_band(minute_of(rank, minute), device)
        routed = experts(clips, bands)
        gate(routed).sum().backward()
        for parameter in gate.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        clips_so_far.append(len(bands))
        torch.cuda.synchronize()
    print(f"roost {rank}: {list(accumulate(clips_so_far))[-1]} clips", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
