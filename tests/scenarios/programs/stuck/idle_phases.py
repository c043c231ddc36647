"""All ranks sleep ten seconds between two phases, outside of any collective; nobody waits for anybody.

A job that waits for its next hour of cheap power does so. Run by ``torchrun --nproc-per-node 3``.
"""

import time

import torch
import torch.distributed as dist


def phase(name: str) -> None:
    """Some collectives."""
    values = torch.randn(100)
    for _ in range(50):
        dist.all_reduce(values)
        values /= dist.get_world_size()
    print(f"{name} done", flush=True)


def main() -> None:
    """Two phases and a rest."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    phase("warm-up")
    time.sleep(10.0)
    phase("training")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
