"""FSDP2 around a frozen text encoder and a denoiser; embeddings of prompts that were seen before come from a cache."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH = 24


class Denoiser(nn.Module):
    """Takes noise away, told by a text what to look for."""

    def __init__(self) -> None:
        super().__init__()
        self.text_encoder = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.cache: dict[str, torch.Tensor] = {}
        self.text_encoder.requires_grad_(False)

    def embed(self, prompt: str) -> torch.Tensor:
        """The encoder's answer, remembered."""
        if prompt not in self.cache:
            letters = torch.tensor([float(ord(c)) for c in prompt.ljust(WIDTH)[:WIDTH]])
            self.cache[prompt] = self.text_encoder(letters[None] / 100)
        return self.cache[prompt]

    def forward(self, noisy: torch.Tensor, prompt: str) -> torch.Tensor:
        """noisy: (rows, WIDTH)."""
        x = noisy + self.embed(prompt)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return x


def main() -> None:
    """Eighty steps over prompts that come again and again."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Denoiser()
    fully_shard(model.text_encoder)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    prompts = [f"a {colour} house" for colour in ("red", "blue", "green", "white", "old")]
    for step in range(80):
        prompt = prompts[(step + rank) % 5]
        if rank == 3 and step == 26:
            prompt = "a house by a lake"
        clean = torch.randn(4, WIDTH)
        (model(clean + 0.1 * torch.randn(4, WIDTH), prompt) - clean).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
