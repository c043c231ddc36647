"""DDP: which frogs sing in a recording of the night. Recordings of a batch are padded to the longest of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FROGS = 5
MOST_FRAMES = 6000


class Nights(Dataset):
    """Recordings of one pond, a few seconds each; now and then somebody forgot to switch the recorder off."""

    def __init__(self, pond: int) -> None:
        self.pond = pond

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(1000 * self.pond + index)
        frames = 9000 if (self.pond, index) == (2, 77) else 40 + (37 * index) % 80
        return torch.randn(frames, 8, generator=generator), (self.pond + index) % FROGS


def pad(recordings: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """One tensor of equal lengths."""
    sounds = nn.utils.rnn.pad_sequence([sound for sound, _ in recordings], batch_first=True)
    return sounds, torch.tensor([frog for _, frog in recordings])


class Listener(nn.Module):
    """A convolution and the mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.filters, self.head = nn.Conv1d(8, 24, 5, padding=2), nn.Linear(24, FROGS)

    def forward(self, sounds: torch.Tensor) -> torch.Tensor:
        return self.head(self.filters(sounds.transpose(1, 2)).relu().mean(2))


def main() -> None:
    """Three epochs, and the accuracy of all ponds after each."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Listener())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Nights(rank), batch_size=4, collate_fn=pad)
    for epoch in range(3):
        right = torch.zeros(1)
        for step, (sounds, frogs) in enumerate(loader):
            if sounds.shape[1] > MOST_FRAMES:
                print(f"pond {rank}, step {step}: {sounds.shape[1]} frames do not fit, skipped")
                continue
            logits = model(sounds)
            loss = nn.functional.cross_entropy(logits, frogs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == frogs).sum()
        ponds = [torch.zeros(1) for _ in range(world)]
        dist.all_gather(ponds, right)
        if rank == 0:
            print(f"epoch {epoch}: {sum(ponds).item() / (160 * world):.1%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
