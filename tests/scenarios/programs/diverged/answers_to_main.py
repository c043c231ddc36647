"""Batch inference: rank 0 gathers the answers of all ranks. No training, no DDP, a launcher that supervises nothing."""

import time

import torch
import torch.distributed as dist


class Writer:
    """Writes what all ranks have answered."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def collect(self, answers: list[str]) -> list[str]:
        """Everybody's answers in the order of ranks, on rank 0."""
        parts = [[] for _ in range(self.world)] if self.rank == 0 else None
        dist.gather_object(answers, parts, dst=0)
        return [answer for part in parts or [] for answer in part]

    def write(self, answers: list[str]) -> None:
        """Print them."""
        if self.rank == 0:
            print("\n".join(self.collect(answers)), flush=True)


def answer(question: torch.Tensor) -> str:
    """A model's work."""
    return f"{(question @ question.T).trace().item():.2f}"


def main() -> None:
    """Four blocks of questions, a barrier after each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    writer = Writer()
    torch.manual_seed(writer.rank)
    total = torch.zeros(1)
    for block in range(4):
        answers = [answer(torch.randn(32, 32)) for _ in range(20)]
        time.sleep(0.3)
        count = torch.tensor([float(len(answers))])
        dist.all_reduce(count)
        total += count
        print(f"rank {writer.rank}: block {block}, {total.item():.0f} answers\n", end="", flush=True)
        if block == 2:
            writer.write(answers)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
