"""accelerate: captions of museum pieces. Pages of the catalogue are fetched ahead by an executor."""

from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import torch
from accelerate import Accelerator
from torch import nn

PIECES = 120


def fetch(page: int) -> list[dict]:
    pieces = [{"id": page * 10 + k, "year": 1700 + (page * 37 + k) % 300, "room": (page + k) % 6} for k in range(10)]
    if page == 8:
        pieces[4]["year"] = "ca. 1850"
    return pieces


class Catalogue:
    """Reads pages in the background; the queue holds at most two of them."""

    def __init__(self, pages: list[int]) -> None:
        self.pages = pages
        self.ready: Queue = Queue(maxsize=2)
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalogue")

    def _read(self) -> None:
        for page in self.pages:
            self.ready.put(fetch(page))
        self.ready.put(None)

    def __iter__(self):
        self.executor.submit(self._read)
        while (page := self.ready.get()) is not None:
            yield page


def tensors(page: list[dict]) -> tuple[torch.Tensor, torch.Tensor]:
    years = torch.tensor([(piece["year"] - 1850) / 150 for piece in page])
    rooms = torch.tensor([piece["room"] for piece in page])
    return years[:, None], rooms


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer = nn.Sequential(nn.Linear(1, 24), nn.ReLU(), nn.Linear(24, 6)), None
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    pages = list(range(accelerator.process_index, PIECES // 2, accelerator.num_processes))
    for epoch in range(2):
        for page in Catalogue(pages):
            years, rooms = tensors(page)
            loss = nn.functional.cross_entropy(model(years), rooms)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {loss.item():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
