"""Feature lookup with a cache that is safe for threads; some entries are made from others. Pairs of ranks and the world."""

import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Features:
    """A cache in front of something expensive."""

    rank: int
    values: dict[int, torch.Tensor] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: int) -> torch.Tensor:
        """The features of an item."""
        with self.guard:
            if key not in self.values:
                self.values[key] = self._make(key)
            return self.values[key]

    def _make(self, key: int) -> torch.Tensor:
        if key == 73 and self.rank == 3:  # a duplicate, listed as an alias in this shard
            return self.get(7)
        return torch.full((5,), float(key))


def main() -> None:
    """Pairs average in every step, the world in every tenth."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3]), dist.new_group([1, 2]), dist.new_group([3, 4])]
    features = Features(rank)
    weights = torch.zeros(5)
    for step in range(1, 101):
        weights += 1e-3 * features.get(step % 80)
        for number, members in enumerate([(0, 1), (2, 3), (1, 2), (3, 4)]):
            if rank in members:
                dist.all_reduce(weights, group=pairs[number])
                weights /= 2
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
