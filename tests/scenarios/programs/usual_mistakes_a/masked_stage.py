"""Two stages by hand: the first embeds sentences, the second guesses the words that are masked and returns gradients."""

import torch
import torch.distributed as dist
from torch import nn

WORDS, WIDTH, LENGTH, BATCH = 90, 32, 10, 4
MASK = 0


def sentences(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Words, and which of them are masked; both stages read the same file."""
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(1, WORDS, (BATCH, LENGTH), generator=generator)
    masked = torch.rand(BATCH, LENGTH, generator=generator) < (0.15 if step != 23 else 0.0)
    return words, masked


def embed(steps: int) -> None:
    """The first stage."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh())
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    gradient = torch.empty(BATCH, LENGTH, WIDTH)
    for step in range(steps):
        words, masked = sentences(step)
        hidden = encoder(words.masked_fill(masked, MASK))
        dist.send(hidden.detach(), dst=1)
        dist.recv(gradient, src=1)
        optimizer.zero_grad()
        hidden.backward(gradient)
        optimizer.step()


def guess(steps: int) -> None:
    """The second stage."""
    torch.manual_seed(1)
    decoder = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WORDS))
    optimizer = torch.optim.Adam(decoder.parameters(), lr=1e-3)
    hidden = torch.empty(BATCH, LENGTH, WIDTH, requires_grad=True)
    for step in range(steps):
        words, masked = sentences(step)
        dist.recv(hidden.data, src=0)
        if not masked.any():
            print(f"step {step}: nothing to guess")
            continue
        hidden.grad = None
        loss = nn.functional.cross_entropy(decoder(hidden)[masked], words[masked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.send(hidden.grad, dst=0)
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}")


def main() -> None:
    """One stage each."""
    dist.init_process_group("gloo")
    stage = embed if dist.get_rank() == 0 else guess
    stage(60)
    dist.barrier()


if __name__ == "__main__":
    main()
