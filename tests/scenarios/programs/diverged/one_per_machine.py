"""Two machines of two ranks (by the environment): the first rank of each collects norms for its machine's log file."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANKS_PER_MACHINE = 2


class MachineLog:
    """What one rank a machine writes down."""

    def __init__(self) -> None:
        rank = int(os.environ["RANK"])
        self.machine, self.local_rank = divmod(rank, RANKS_PER_MACHINE)
        self.lines: list[str] = []

    def add(self, step: int, value: float) -> None:
        """A line with the values of all ranks."""
        if self.local_rank == 0:
            values = torch.zeros(dist.get_world_size())
            dist.all_gather_into_tensor(values, torch.tensor([value]))
            self.lines.append(f"machine {self.machine} step {step}: {values.tolist()}")
            print(self.lines[-1] + "\n", end="", flush=True)


def main() -> None:
    """Thirty steps, a line every tenth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(20, 20))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    machine_log = MachineLog()
    for step in range(1, 31):
        inputs = torch.randn(4, 20)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            machine_log.add(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
