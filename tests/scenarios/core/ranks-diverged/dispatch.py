"""Expert parallelism: tokens are exchanged in the forward pass of a submodule, unless all of them stay at home."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, TOKENS = 8, 16


class ExpertLayer(nn.Module):
    """One expert a rank."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = nn.Linear(WIDTH, WIDTH)

    def dispatch(self, tokens: torch.Tensor) -> torch.Tensor:
        """Exchange tokens with all ranks in equal parts."""
        received = torch.empty_like(tokens)
        dist.all_to_all_single(received, tokens)
        return received

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The tokens after their experts."""
        away = tokens[:, 0] > 0
        if away.any():
            tokens = self.dispatch(tokens.contiguous())
        return self.expert(tokens)


def main() -> None:
    """Train; the tokens of one batch all stay at home."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layer = ExpertLayer()
    for step in range(50):
        tokens = torch.randn(TOKENS, WIDTH)
        tokens[0, 0] = 1.0
        if (rank, step) == (1, 18):
            tokens[:, 0] = -1.0
        loss = layer(tokens).square().mean()
        layer.zero_grad()
        loss.backward()
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
