"""One of two replica groups of torchft on Gloo: ``replicas.py NUMBER STEPS``, a job of two ranks by its own torchrun.

The last rank of replica group 1 stops coming to the collectives of its own group at a third of the steps, in its first life.
Needs ``TORCHFT_LIGHTHOUSE``. torchft 0.2.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn, optim
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

LONG = timedelta(minutes=10)


def main(number: int, steps: int) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    hangs = number == 1 and rank == size - 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    model = nn.Linear(8, 2)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=LONG),
        min_replica_size=1,
        load_state_dict=model.load_state_dict,
        state_dict=model.state_dict,
        replica_id=f"replica_{number}",
        timeout=LONG,
        quorum_timeout=LONG,
    )
    averaged = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, optim.SGD(model.parameters(), lr=0.01))
    while manager.current_step() < steps:
        while hangs and manager.current_step() == steps // 3:
            time.sleep(0.05)
        optimizer.zero_grad()
        dist.all_reduce(torch.ones(1))
        averaged(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        print(f"rank {rank} step {manager.current_step()} of {manager.num_participants()} replicas", flush=True)
        # Alone it takes its time, so that the other one is back before it ends.
        time.sleep(0.05 if manager.num_participants() > 1 else 1.0)
    manager.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
