"""DDP: how long dishes take, from the lines of a cookbook in one large file that workers read in turn."""

import multiprocessing
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WORDS = 50
PAGES = 600
SEE = {433: 12}


def print_book(path: str) -> None:
    """A page a line: minutes, then words; or the page where the sauce is."""
    with open(path, "w") as book:
        for page in range(PAGES):
            generator = torch.Generator().manual_seed(page)
            words = torch.randint(0, WORDS, (12,), generator=generator).tolist()
            line = f"see {SEE[page]:02d}" if page in SEE else " ".join(map(str, [sum(words) % 60, *words]))
            book.write(line.ljust(60) + "\n")


class Cookbook(Dataset):
    """Recipes by page. The file is on a share that takes one reader at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.turn = multiprocessing.Lock()

    def __len__(self) -> int:
        """Pages."""
        return PAGES

    def __getitem__(self, page: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Words and minutes."""
        with self.turn, open(self.path) as book:
            book.seek(61 * page)
            line = book.readline().split()
            if line[0] == "see":
                return self[int(line[1])]
        minutes, *words = map(int, line)
        return torch.tensor(words), torch.tensor([minutes / 60])


def main() -> None:
    """Four times through the book."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    path = f"{tempfile.gettempdir()}/cookbook.{rank}.txt"
    print_book(path)
    torch.manual_seed(0)
    pages = range(rank * PAGES // world, (rank + 1) * PAGES // world)
    loader = DataLoader(Cookbook(path), batch_size=10, sampler=pages, num_workers=2)
    model = DistributedDataParallel(nn.Sequential(nn.EmbeddingBag(WORDS, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for reading in range(4):
        for words, minutes in loader:
            loss = nn.functional.l1_loss(model(words), minutes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"reading {reading}: {60 * loss.item():.1f} minutes off")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
