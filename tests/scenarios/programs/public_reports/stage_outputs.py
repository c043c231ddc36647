"""Three pipeline stages by hand; the evaluation also collects outputs that are no loss."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS, MICROBATCHES = 16, 4, 3


class Stage:
    """This rank's part of the network."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(self.rank)
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    @property
    def is_last(self) -> bool:
        """Whether losses come out here."""
        return self.rank == self.world - 1

    def recv_forward(self) -> torch.Tensor:
        """Activations of the stage before, or data."""
        if self.rank == 0:
            return torch.randn(ROWS, WIDTH)
        activations = torch.empty(ROWS, WIDTH)
        dist.recv(activations, src=self.rank - 1)
        return activations

    def send_forward(self, activations: torch.Tensor) -> None:
        """Hand on to the next stage."""
        dist.send(activations, dst=self.rank + 1)

    def forward_only(self, collect_non_loss_data: bool = False) -> list[torch.Tensor]:
        """The schedule of an evaluation."""
        results = []
        with torch.no_grad():
            for _ in range(MICROBATCHES):
                output = self.net(self.recv_forward())
                if not self.is_last:
                    self.send_forward(output)
                else:
                    results.append(output if collect_non_loss_data else output.square().mean())
        return results


def evaluate(stage: Stage, iterations: int, process_non_loss_data: bool) -> torch.Tensor:
    """Mean loss; on the last stage the raw outputs are looked at, too."""
    losses: list[torch.Tensor] = []
    for _ in range(iterations):
        losses += stage.forward_only()
    if process_non_loss_data and stage.is_last:
        outputs = torch.cat(stage.forward_only(collect_non_loss_data=True))
        print(f"largest output {outputs.abs().max().item():.3f}", flush=True)
    total = torch.stack(losses).mean() if losses else torch.zeros(())
    dist.broadcast(total, src=stage.world - 1)
    return total


def main() -> None:
    """Two evaluations, the second one with figures."""
    dist.init_process_group("gloo")
    stage = Stage()
    for number in range(2):
        loss = evaluate(stage, iterations=5, process_non_loss_data=number == 1)
        if stage.rank == 0:
            print(f"evaluation {number}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
