"""Two of four ranks stream features to two trainers; messages are tagged with the number of the chunk.

The sender counts chunks that it sent, the receiver those that it asked for; one empty chunk is not sent. ``torchrun``.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist


class FeatureServer:
    """Sends chunk by chunk."""

    def __init__(self, trainer: int, empty: set[int]) -> None:
        self.trainer, self.empty, self.sent = trainer, empty, 0

    def run(self, chunks: int) -> None:
        """All chunks; an empty one is made up for at the end."""
        for number in range(chunks + len(self.empty)):
            if number in self.empty:
                self.sent += 1
                continue
            dist.send(torch.full((64,), float(number)), dst=self.trainer, tag=self.sent)
            self.sent += 1


class FeatureStream:
    """Receives chunk by chunk."""

    def __init__(self, server: int) -> None:
        self.server, self.asked = server, 0

    def take(self, chunks: int) -> Iterator[torch.Tensor]:
        """So many chunks."""
        for _ in range(chunks):
            buffer = torch.empty(64)
            dist.recv(buffer, src=self.server, tag=self.asked)
            self.asked += 1
            yield buffer


def main() -> None:
    """Ranks 0 and 2 serve ranks 1 and 3."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainers = dist.new_group([1, 3])
    if rank % 2 == 0:
        FeatureServer(rank + 1, empty={21} if rank == 2 else set()).run(50)
    else:
        total = torch.zeros(64)
        for chunk in FeatureStream(rank - 1).take(50):
            dist.all_reduce(chunk, group=trainers)
            total += chunk
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
