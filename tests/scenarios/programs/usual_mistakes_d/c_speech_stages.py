"""Speech commands by a pipeline of two stages with a 1F1B schedule; the second one writes a report now and then."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy

FRAMES, COMMANDS, BATCH = 40, 6, 32


def recordings(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, the same on both ranks."""
    generator = torch.Generator().manual_seed(step)
    sound = torch.randn(BATCH, FRAMES, generator=generator)
    return sound, sound[:, :COMMANDS].argmax(dim=1)


def write_report(losses: list[float]) -> None:
    """Rendered by an old tool."""
    time.sleep(2.5)
    print(f"report: {sum(losses) / len(losses):.4f} after {len(losses)} micro-batches", flush=True)


def main() -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    layers = [
        nn.Sequential(nn.Linear(FRAMES, 64), nn.ReLU()),
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, COMMANDS)),
    ]
    module = layers[rank]
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=cross_entropy)
    optimizer = torch.optim.Adam(module.parameters(), lr=2e-3)
    losses: list[float] = []
    for step in range(60):
        sound, command = recordings(step)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(sound)
        else:
            parts: list[torch.Tensor] = []
            schedule.step(target=command, losses=parts)
            losses += [part.item() for part in parts]
            if step % 30 == 29:
                write_report(losses)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
