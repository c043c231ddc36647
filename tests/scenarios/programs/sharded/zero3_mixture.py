"""DeepSpeed ZeRO-3 and a mixture of experts, of which a rank runs only those that its tokens go to.

With ``--leaf`` the mixture is declared a leaf module, and all of its experts are gathered at once.
"""

import argparse

import deepspeed
import torch
from deepspeed.utils import set_z3_leaf_modules
from torch import nn

WIDTH = 16
SETTINGS = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


class Mixture(nn.Module):
    """Every token goes to the expert of its sign."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The tokens after their experts."""
        choice = (tokens.mean(1) > 0).long()
        mixed = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            chosen = (choice == number).nonzero().flatten()
            if len(chosen):
                mixed = mixed.index_add(0, chosen, expert(tokens[chosen]))
        return mixed


def main() -> None:
    """Train; from the fifth step on one rank has tokens of one kind only."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--leaf", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    model = nn.Sequential(Mixture(), nn.Linear(WIDTH, WIDTH, bias=False))
    if options.leaf:
        set_z3_leaf_modules(model, [Mixture])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)
    for step in range(20):
        tokens = torch.randn(8, WIDTH)
        tokens[0], tokens[1] = tokens[0].abs(), -tokens[1].abs()
        if rank == 2 and step >= 4:
            tokens = tokens.abs()
        loss = engine(tokens.requires_grad_()).square().mean()
        engine.backward(loss)
        engine.step()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
