"""A small decoder with FSDP2; weights are exported as one file at the end of each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DIM, WORDS, LENGTH = 48, 120, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.head = nn.Linear(DIM, WORDS)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(x)


def export(model, epoch):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    torch.save(weights, f"/tmp/tiny_lm_{epoch}.pt")
    print(f"saved epoch {epoch}", flush=True)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    model = Decoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for _ in range(8):
            ids = torch.randint(0, WORDS, (4, LENGTH + 1))
            logits = model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            export(model, epoch)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
