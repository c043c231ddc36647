"""Rank 0 validates over the whole held-out set between epochs, the others wait for the score."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, TAGS = 48, 12


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0])


@torch.no_grad()
def validate(model: nn.Module, seconds: float) -> float:
    """As many held-out documents as there is time for, with a beam over the tags of each."""
    generator = torch.Generator().manual_seed(99)
    right = total = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        x = torch.randn(4, 60, WIDTH, generator=generator)
        scores = model(x).log_softmax(-1)
        beam, tags = scores[:, 0].topk(5)
        for position in range(1, scores.shape[1]):
            joint = beam.unsqueeze(2) + scores[:, position].unsqueeze(1)
            beam, flat = joint.flatten(1).topk(5)
            tags = flat % TAGS
        right += (tags[:, 0] == x[:, -1, :TAGS].argmax(1)).sum().item()
        total += len(x)
    return right / total


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(1, 3):
        for _ in range(25):
            x = torch.randn(4, 20, WIDTH, generator=generator)
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x[..., :TAGS].argmax(2).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)
        score = torch.zeros(1)
        if rank == 0:
            score[0] = validate(model.module, seconds=10.0 if epoch == 2 else 3.0)
        dist.broadcast(score, src=0)
        print(f"[{rank}] epoch {epoch}: {score.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
