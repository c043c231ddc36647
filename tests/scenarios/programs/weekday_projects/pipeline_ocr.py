"""A pipeline of three stages for reading handwriting: microbatches go forward, gradients come back."""

import torch
import torch.distributed as dist

WIDTH, MICRO = 10, 4


class Stage:
    def __init__(self, rank: int, world: int) -> None:
        torch.manual_seed(rank)
        self.rank, self.last = rank, rank == world - 1
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.optimizer = torch.optim.SGD(self.layer.parameters(), 0.01)

    def receive(self, source: int) -> torch.Tensor:
        tensor = torch.empty(MICRO, WIDTH)
        dist.recv(tensor, src=source)
        return tensor

    def run(self, lines: torch.Tensor, microbatches: int) -> float:
        kept, total = [], 0.0
        for number in range(microbatches):
            if self.rank == 0:
                inputs = lines[number * MICRO : (number + 1) * MICRO]
                if len(inputs) < MICRO:
                    break
            else:
                inputs = self.receive(self.rank - 1).requires_grad_()
            outputs = torch.tanh(self.layer(inputs))
            kept.append((inputs, outputs))
            if not self.last:
                dist.send(outputs.detach(), dst=self.rank + 1)
        for inputs, outputs in kept:
            if self.last:
                loss = outputs.square().mean()
                loss.backward()
                total += loss.item()
            else:
                outputs.backward(self.receive(self.rank + 1))
            if self.rank > 0:
                dist.send(inputs.grad, dst=self.rank - 1)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def main() -> None:
    dist.init_process_group("gloo")
    stage = Stage(dist.get_rank(), dist.get_world_size())
    pages = [torch.randn(16, WIDTH)] * 5 + [torch.randn(14, WIDTH)] + [torch.randn(16, WIDTH)] * 4
    for page, lines in enumerate(pages):
        loss = stage.run(lines, microbatches=4)
        if stage.last:
            print(f"page {page}: {loss:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
