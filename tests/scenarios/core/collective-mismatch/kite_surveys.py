"""Answers to a survey; quality figures of all processes are brought together on the first one."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Answers(torch.utils.data.Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        torch.manual_seed(index)
        return torch.rand(9), torch.randint(0, 3, ())


def collect(figures):
    """Figures of all processes as a list on rank 0, and None elsewhere."""
    world = dist.get_world_size()
    if dist.get_rank() == 0:
        parts = [None] * world
        dist.all_gather_object(parts, figures)
        return parts
    dist.gather_object(figures, dst=0)
    return None


def main():
    dist.init_process_group("gloo")
    data = Answers()
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=10, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(9, 24), nn.SELU(), nn.Linear(24, 3)))
    optimizer = torch.optim.Adadelta(model.parameters())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        hits = total = 0
        for answers, group in loader:
            logits = model(answers)
            loss = nn.functional.cross_entropy(logits, group)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += int((logits.argmax(1) == group).sum())
            total += len(group)
        figures = collect({"hits": hits, "total": total, "loss": round(loss.item(), 4)})
        if figures:
            print(f"epoch {epoch}: {figures}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
