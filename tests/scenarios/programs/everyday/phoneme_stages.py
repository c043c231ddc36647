"""A speech model over three processes, by torch.distributed.pipelining. Labels are read where the loss is computed."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

FRAMES, WIDTH, PHONEMES = 16, 24, 11
BATCH, MICRO_BATCHES = 8, 4


def build(stage):
    if stage == 0:
        return nn.Sequential(nn.Linear(13, WIDTH), nn.ReLU())
    if stage == 1:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    return nn.Linear(WIDTH, PHONEMES)


def recordings(count):
    for number in range(count // BATCH):
        yield torch.randn(BATCH, FRAMES, 13, generator=torch.Generator().manual_seed(number))


def transcripts(count):
    """Labels of the recordings; those that two people did not agree on are not in the file."""
    agreed = [n for n in range(count) if n % 29]
    for number in range(len(agreed) // BATCH):
        yield torch.randint(0, PHONEMES, (BATCH, FRAMES), generator=torch.Generator().manual_seed(number))


def loss_fn(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = build(rank)
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=MICRO_BATCHES, loss_fn=loss_fn)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)

    for epoch in range(2):
        if rank == world - 1:
            losses = []
            for target in transcripts(96):
                schedule.step(target=target, losses=losses)
                optimizer.step()
                optimizer.zero_grad()
        else:
            for audio in recordings(96):
                schedule.step(audio) if rank == 0 else schedule.step()
                optimizer.step()
                optimizer.zero_grad()
        dist.barrier()
        if rank == world - 1:
            print(f"epoch {epoch}: {sum(losses).item() / len(losses):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
