"""One rank writes its samples to the pipe of a converter that has stopped reading; the pipe is full.

Run by ``torchrun --nproc-per-node 3``.
"""

import subprocess
import sys

import torch
import torch.distributed as dist

CONVERTER = """
import sys, time
for _ in range(100):
    sys.stdin.readline()
time.sleep(3600)
"""


class SampleDump:
    """Sends generated samples through a converter."""

    def __init__(self) -> None:
        self.converter = subprocess.Popen([sys.executable, "-c", CONVERTER], stdin=subprocess.PIPE, env={})

    def write(self, samples: torch.Tensor) -> None:
        """One line a sample."""
        assert self.converter.stdin is not None
        for sample in samples.tolist():
            self.converter.stdin.write((" ".join(f"{value:.3f}" for value in sample) + "\n").encode())
        self.converter.stdin.flush()


def main() -> None:
    """Generate and dump."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.nn.Linear(8, 64)
    dump = SampleDump() if rank == 2 else None
    for _ in range(400):
        with torch.no_grad():
            samples = generator(torch.randn(16, 8))
        mean = samples.mean(0)
        dist.all_reduce(mean)
        if dump is not None:
            dump.write(samples)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
