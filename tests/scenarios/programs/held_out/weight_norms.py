"""DeepSpeed ZeRO-3: the norms of the largest weights go to the log, for which their parts are brought together.

Only the process that writes the log takes part. Run by ``torchrun --nproc-per-node 3``.
"""

import logging
from collections.abc import Iterator

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "bf16": {"enabled": True},
}


class NormLog:
    """Writes norms on the process with the log file."""

    def __init__(self, module: nn.Module, writer: int, every: int) -> None:
        self.module, self.writer, self.every = module, writer, every
        self.logger = logging.getLogger("norms")

    def norms(self) -> Iterator[tuple[str, float]]:
        """Name and norm of every matrix."""
        for name, parameter in self.module.named_parameters():
            if name.endswith("weight"):
                with deepspeed.zero.GatheredParameters([parameter]):
                    yield name, parameter.detach().float().norm().item()

    def __call__(self, step: int) -> None:
        """Log if it is time and our turn."""
        if step % self.every == 0 and dist.get_rank() == self.writer:
            for name, norm in self.norms():
                self.logger.info("%s %.3f", name, norm)


def main() -> None:
    """Thirty steps."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    log = NormLog(engine.module, writer=1, every=10)
    for step in range(1, 31):
        x = torch.randn(2, 16, dtype=torch.bfloat16)
        loss = (engine(x) - x).square().mean()
        engine.backward(loss)
        engine.step()
        log(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
