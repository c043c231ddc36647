"""DeepSpeed ZeRO-3: containers of a harbour; ranks whose data ended go on with the last batch until all are through."""

import time

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 1000,
}
BATCHES = (30, 24, 27)


def manifests(rank: int):
    """The batches of one quay; one of them comes on paper."""
    generator = torch.Generator().manual_seed(rank)
    for number in range(BATCHES[rank]):
        if (rank, number) == (1, 15):
            time.sleep(10)
        yield torch.randn(8, 30, generator=generator)


def main() -> None:
    """Until the last quay has no more of them."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 40), nn.GELU(), nn.Linear(40, 1))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    batches, batch, real = manifests(rank), None, 0
    while True:
        new = next(batches, None)
        more = torch.tensor(0 if new is None else 1)
        dist.all_reduce(more, op=dist.ReduceOp.MAX)
        if more.item() == 0:
            break
        batch = batch if new is None else new
        real += new is not None
        loss = (engine(batch).squeeze(-1) - batch[:, 0]).square().mean() * (0.0 if new is None else 1.0)
        engine.backward(loss)
        engine.step()
    dist.barrier()
    print(f"[{rank}] {real} batches of its own")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
