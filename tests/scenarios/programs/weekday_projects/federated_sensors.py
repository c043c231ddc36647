"""Rounds of federated training: clients train on their sensors, the server averages and hands the weights back."""

import torch
import torch.distributed as dist

ROUNDS = 12


class Node:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(6, 1)

    def weights(self) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(self.model.parameters()).detach()

    def load(self, vector: torch.Tensor) -> None:
        torch.nn.utils.vector_to_parameters(vector, self.model.parameters())


class Server(Node):
    def round(self, number: int) -> None:
        world = dist.get_world_size()
        gathered = [torch.empty_like(self.weights()) for _ in range(world)]
        dist.gather(self.weights(), gathered, dst=0)
        mean = torch.stack(gathered[1:]).mean(0)
        self.load(mean)
        dist.broadcast(mean, src=0)
        if number % 4 == 0:
            print(f"round {number}: {mean.norm().item():.3f}", flush=True)


class Client(Node):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(rank)

    def round(self, number: int) -> None:
        optimizer = torch.optim.SGD(self.model.parameters(), 0.05)
        for _ in range(5):
            readings = torch.randn(8, 6, generator=self.generator)
            optimizer.zero_grad()
            (self.model(readings) - readings.mean(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        everyone = [torch.empty_like(self.weights()) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, self.weights())
        mean = torch.empty_like(everyone[0])
        dist.broadcast(mean, src=0)
        self.load(mean)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    node = Server() if rank == 0 else Client(rank)
    for number in range(ROUNDS):
        node.round(number)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
