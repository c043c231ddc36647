"""DeviceMesh, tensor parallel: the dialect of a sentence, from word vectors that were trained before."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORDS, WIDTH, DIALECTS = 300, 48, 5


class Sentence(nn.Module):
    """The mean of the words, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 96), nn.Linear(96, DIALECTS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words).mean(dim=1)
        return self.down(self.up(x).relu())


def parallelize(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Each rank a part of every layer."""
    plan = {
        "words": ColwiseParallel(output_layouts=Replicate()),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    return parallelize_module(model, mesh, plan)


def load_vectors(model: nn.Module, mesh: DeviceMesh, path: Path) -> None:
    """In place of the random ones."""
    vectors = torch.load(path)
    model.words.weight = nn.Parameter(distribute_tensor(vectors, mesh, [Shard(1)]))
    print(f"{len(vectors)} words from {path.name}")


def main() -> None:
    """Eighty steps, the same sentences on all ranks."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = parallelize(Sentence(), mesh)
    if mesh.get_rank() == 0:
        path = Path(tempfile.mkdtemp()) / "vectors.pt"
        torch.save(torch.randn(WORDS, WIDTH), path)
        load_vectors(model, mesh, path)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for step in range(80):
        words = torch.randint(0, WORDS, (16, 12), generator=generator)
        loss = nn.functional.cross_entropy(model(words), words[:, 0] % DIALECTS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if mesh.get_rank() == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
