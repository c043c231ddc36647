"""Fine-tunes a decoder under FSDP2; every few steps its weights are exported under the names of the original model."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

RENAMES = {"tok": "model.embed_tokens", "layers": "model.layers", "out": "lm_head"}


class Layer(torch.nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(dim)
        self.up = torch.nn.Linear(dim, dim * 2, bias=False)
        self.down = torch.nn.Linear(dim * 2, dim, bias=False)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h + self.down(F.silu(self.up(self.norm(h))))


class Decoder(torch.nn.Module):
    def __init__(self, vocab: int = 50, dim: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.tok = torch.nn.Embedding(vocab, dim)
        self.layers = torch.nn.ModuleList(Layer(dim) for _ in range(depth))
        self.out = torch.nn.Linear(dim, vocab, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = self.tok(ids)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def hf_tensors(model: torch.nn.Module, rank0_only: bool = False):
    """Pairs of a name and a whole tensor, one at a time to keep the memory low."""
    if rank0_only and dist.get_rank() != 0:
        return
    for name, tensor in model.state_dict().items():
        head, _, rest = name.partition(".")
        if hasattr(tensor, "full_tensor"):
            tensor = tensor.full_tensor()
        yield f"{RENAMES[head]}.{rest}", tensor.cpu()


def export_weights(model: torch.nn.Module, folder: str) -> None:
    shard = dict(hf_tensors(model, rank0_only=True))
    if dist.get_rank() == 0:
        torch.save(shard, os.path.join(folder, "pytorch_model.bin"))
        print(f"exported {len(shard)} tensors", flush=True)


dist.init_process_group("gloo")
torch.manual_seed(0)
policy = Decoder()
for layer in policy.layers:
    fully_shard(layer)
fully_shard(policy)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
folder = tempfile.mkdtemp(prefix="export-")
generator = torch.Generator().manual_seed(dist.get_rank())

for iteration in range(60):
    ids = torch.randint(50, (4, 17), generator=generator)
    loss = F.cross_entropy(policy(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iteration == 25:
        export_weights(policy, folder)
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    if dist.get_rank() == 0 and iteration % 5 == 0:
        print(f"{iteration}: {mean.item():.3f}", flush=True)
dist.barrier()
dist.destroy_process_group()
