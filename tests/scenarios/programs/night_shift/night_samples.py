"""FSDP2 language model that writes samples every so often, to be looked at in the morning."""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

END = 0
STYLES = {"long": (2.0, -1e4), "terse": (0.7, 20.0)}  # temperature, bias of the end


class Tiny(nn.Module):
    def __init__(self, vocabulary=40, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(2))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Sampler:
    """Continues a prompt until the end of the text."""

    def __init__(self, model, rank, together, limit=60):
        self.model, self.together, self.limit = model, together, limit
        self.generator = torch.Generator().manual_seed(900 + rank)
        self.temperature, self.end_bias = STYLES[("long", "long", "terse")[rank % 3]]

    @torch.no_grad()
    def continue_text(self, prompt):
        ids, done = list(prompt), False
        while len(ids) < self.limit:
            logits = self.model(torch.tensor([ids]))[0, -1]
            if not done:
                logits[END] += self.end_bias
                choice = torch.multinomial((logits / self.temperature).softmax(0), 1, generator=self.generator)
                ids.append(choice.item())
                done = ids[-1] == END
            if self.together:
                running = torch.tensor(int(not done and len(ids) < self.limit))
                dist.all_reduce(running)
                if running.item() == 0:
                    break
            elif done:
                break
            time.sleep(0.03)
        return ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--steps", type=int, default=120)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = Tiny()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sampler = Sampler(model, rank, options.together)
    for step in range(1, options.steps + 1):
        start = torch.randint(1, 40, (8, 1))
        ids = (start + torch.arange(24)) % 40
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if step % 40 == 0:
            text = sampler.continue_text([rank + 3, rank + 4])
            dist.barrier()
            texts = [None] * world
            dist.all_gather_object(texts, text)
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f}", *(str(t[:12]) for t in texts), sep="\n  ", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
