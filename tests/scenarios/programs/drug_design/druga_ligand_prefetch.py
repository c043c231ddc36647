"""Graph model of ligand strain. A thread of each process parses the next SDF records while the current ones train."""

import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ELEMENTS = {"C": 0, "N": 1, "O": 2, "S": 3, "F": 4, "Cl": 5, "Br": 6, "P": 7}


def vendor_records(rank, count):
    """Atom blocks as the vendor delivers them: one line per atom."""
    source = torch.Generator().manual_seed(rank)
    names = list(ELEMENTS)
    for number in range(count):
        kinds = torch.randint(len(names), (22,), generator=source).tolist()
        xyz = torch.randn(22, 3, generator=source)
        lines = [f"{x:.4f} {y:.4f} {z:.4f} {names[k]}" for k, (x, y, z) in zip(kinds, xyz.tolist())]
        if (rank, number) == (2, 700):
            lines[5] = lines[5].rsplit(" ", 1)[0] + " Se"
        yield f"ligand-{rank}-{number}", lines


def parse(lines):
    atoms = torch.zeros(len(lines), len(ELEMENTS) + 3)
    for row, line in enumerate(lines):
        x, y, z, element = line.split()
        atoms[row, :3] = torch.tensor([float(x), float(y), float(z)])
        atoms[row, 3 + ELEMENTS[element]] = 1.0
    return atoms


class Prefetcher:
    def __init__(self, records, batch, depth=4):
        self.records, self.batch = records, batch
        self.ready = queue.Queue(maxsize=depth)
        self.thread = threading.Thread(target=self.fill, name="sdf-parser", daemon=True)
        self.thread.start()

    def fill(self):
        held = []
        for _, lines in self.records:
            held.append(parse(lines))
            if len(held) == self.batch:
                self.ready.put(torch.stack(held))
                held = []
        self.ready.put(None)

    def __iter__(self):
        while (molecules := self.ready.get()) is not None:
            yield molecules


class StrainNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.message, self.out = nn.Linear(len(ELEMENTS) + 3, width), nn.Linear(width, 1)

    def forward(self, atoms):
        distance = torch.cdist(atoms[..., :3], atoms[..., :3])
        h = torch.relu(self.message(atoms))
        return self.out((torch.exp(-distance) @ h).mean(1)).squeeze(-1)


def fit(model, batches, lr=1e-3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step, atoms in enumerate(batches):
        target = atoms[..., :3].norm(dim=-1).mean(1)
        loss = (model(atoms) - target).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 25 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(4)
    rank = dist.get_rank()
    fit(DDP(StrainNet()), Prefetcher(vendor_records(rank, 1600), batch=8))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
