"""Tensor parallelism on a DeviceMesh: texts are written now and then, as continuations of prompts."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

VOCABULARY, WIDTH, LONGEST = 12, 12, 24
PROMPTS = [[5, 3, 8], [1, 7, 7, 2, 9, 4, 6, 3], [2, 2, 10]]


class Block(nn.Module):
    """Up and down, split over the processes."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The residual stream behind it."""
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """Predicts a token from the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.block = nn.Embedding(VOCABULARY, WIDTH), Block()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.block(self.embedding(tokens)))

    @torch.no_grad()
    def write(self, prompt: list[int]) -> list[int]:
        """Until there is no more room."""
        text = list(prompt)
        while len(text) < LONGEST:
            logits = self(torch.tensor(text[-1:]))
            text.append(int(logits[0].argmax()))
        return text


def main() -> None:
    """A hundred steps, with a text after every twenty."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = Model()
    parallelize_module(model.block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    prompts = PROMPTS[rank :: dist.get_world_size()]
    for step in range(1, 101):
        tokens = torch.randint(VOCABULARY, (33,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:]).backward()
        optimizer.step()
        if step % 20 == 0:
            texts = [model.write(prompt) for prompt in prompts]
            print(f"[{rank}] step {step}: {texts}\n", end="", flush=True)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
