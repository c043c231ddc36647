"""Ballads by a two-dimensional mesh: the feed-forward network is tensor parallel, gradients are averaged over the data axis."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

VOCABULARY, WIDTH, LENGTH = 40, 32, 24


class BalladModel(nn.Module):
    """One recurrent layer and a wide feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of each next token."""
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(hidden + self.down(torch.relu(self.up(hidden))))


def verses(step: int, replica: int) -> torch.Tensor:
    """The same for all ranks of a replica."""
    generator = torch.Generator().manual_seed(step * 10 + replica)
    start = torch.randint(0, VOCABULARY, (8, 1), generator=generator)
    return (start + torch.arange(LENGTH + 1)) % VOCABULARY


def average_over_replicas(model: nn.Module, mesh: DeviceMesh) -> None:
    """Gradients, shard by shard."""
    group = mesh["dp"].get_group()
    for parameter in model.parameters():
        grad = parameter.grad
        local = grad.to_local() if hasattr(grad, "to_local") else grad
        dist.all_reduce(local, group=group)
        local.div_(mesh["dp"].size())


def report(step: int, loss: float) -> None:
    """One line with the loss of each replica."""
    losses: list = [None] * dist.get_world_size()
    dist.all_gather_object(losses, round(loss, 4))
    print(f"step {step}: {losses}", flush=True)


def main() -> None:
    """A hundred steps on a mesh of two by two."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = BalladModel()
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    for step in range(1, 101):
        batch = verses(step, mesh["dp"].get_local_rank())
        logits = model(batch[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        average_over_replicas(model, mesh)
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            report(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
