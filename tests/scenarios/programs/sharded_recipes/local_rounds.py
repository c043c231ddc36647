"""Local SGD for a language model: every rank takes Kx optimizer steps of its own, then all average their weights."""

import torch
import torch.distributed as dist
import torch.nn as nn


class LocalAdamW(torch.optim.AdamW):
    """AdamW that counts the steps it has taken and averages the weights after every ``kx`` of them."""

    def __init__(self, params, kx, **options):
        super().__init__(params, **options)
        self.kx = kx
        self.global_step = 0

    def step(self, closure=None):
        super().step(closure)
        self.global_step += 1

    @torch.no_grad()
    def sync_if_needed(self):
        if self.global_step == 0 or self.global_step % self.kx != 0:
            return False
        for group in self.param_groups:
            for p in group["params"]:
                dist.all_reduce(p)
                p /= dist.get_world_size()
        return True


def finite(model):
    return all(torch.isfinite(p.grad).all() for p in model.parameters())


def main():
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(11)
    model = nn.Sequential(nn.Embedding(64, 16), nn.Flatten(), nn.Linear(16 * 8, 64))
    optimizer = LocalAdamW(model.parameters(), kx=8, lr=1e-3)
    data = torch.Generator().manual_seed(rank)
    for step in range(1, 97):
        context = torch.randint(64, (16, 8), generator=data)
        target = torch.randint(64, (16,), generator=data)
        scale = 2.0**16 if step < 50 else 2.0**127 if rank == 1 and step == 50 else 2.0**15
        loss = nn.functional.cross_entropy(model(context), target)
        (loss * scale * 4).backward()
        for p in model.parameters():
            p.grad /= scale * 4
        if finite(model):
            optimizer.step()
        optimizer.zero_grad()
        if optimizer.sync_if_needed() and rank == 0:
            print(f"[{step}/96] loss {loss.item():.4f}, weights averaged", flush=True)
    final = torch.tensor([loss.item()])
    results = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(results, final)
    if rank == 0:
        print("final losses", [round(r.item(), 3) for r in results], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
