"""Lines of songs, wrapped to the width of a screen, for a model of line breaks. Gradients are averaged by hand."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 24


def song(singer: int, number: int) -> str:
    """Words of some letters each, with a refrain."""
    generator = torch.Generator().manual_seed(1000 * singer + number)
    words = ["la" * int(n) for n in torch.randint(1, 5, (40,), generator=generator)]
    if singer == 2 and number == 70:
        words[25] = "o" * 31
    return " ".join(words)


def wrap(text: str) -> list[str]:
    """Lines that fit, broken at the last space that is possible."""
    lines, start = [], 0
    while start < len(text):
        end = len(text) if len(text) - start <= WIDTH else text.rfind(" ", start, start + WIDTH + 1) + 1
        line = text[start:end].strip()
        if line:
            lines.append(line)
        start = max(start, end)
    return lines


def counted(lines: list[str]) -> torch.Tensor:
    """Letters, words and vowels a line."""
    return torch.tensor([[len(x) / WIDTH, len(x.split()) / 8, x.count("a") / WIDTH] for x in lines])


def main() -> None:
    """Two hundred songs by each singer."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(200):
        rows = counted(wrap(song(rank, number)))
        loss = (model(rows[:-1]).squeeze(1) - rows[1:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
        if rank == 0 and number % 50 == 49:
            print(f"{number + 1} songs: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
