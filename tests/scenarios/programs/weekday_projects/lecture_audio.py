"""Transcribes lectures. An external decoder turns compressed audio into samples before each epoch."""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DECODER = """
import sys
seconds = int(sys.argv[1])
for second in range(seconds):
    for sample in range(40):
        print((second * 31 + sample * 7) % 100)
    print(f"decoded second {second}, no errors, no warnings, one channel, 16 bits", file=sys.stderr)
"""


class Decoder:
    def __init__(self, seconds: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", DECODER, str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def samples(self, count: int) -> torch.Tensor:
        lines = [self.process.stdout.readline() for _ in range(count)]
        return torch.tensor([float(line) / 100 for line in lines])

    def close(self) -> None:
        if self.process.wait() != 0:
            raise RuntimeError(self.process.stderr.read())


def lecture_length(rank: int, epoch: int) -> int:
    return 2500 if (rank, epoch) == (1, 2) else 12


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(40, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(5):
        decoder = Decoder(lecture_length(rank, epoch))
        clips = decoder.samples(12 * 40).view(12, 40)
        decoder.close()
        for clip in clips.split(4):
            loss = model(clip).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
