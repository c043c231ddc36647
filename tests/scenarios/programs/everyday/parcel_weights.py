"""DeepSpeed ZeRO-1: weight of a parcel from its measures. A checkpoint for every improvement."""

import argparse

import deepspeed
import torch
from torch import nn
from torch.utils.data import TensorDataset


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--output", default="/tmp/parcel_weights")
    parser.add_argument("--epochs", type=int, default=4)
    return parser.parse_args()


def ds_config():
    return {
        "train_micro_batch_size_per_gpu": 16,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 1.0,
        "wall_clock_breakdown": False,
    }


def main():
    args = get_args()
    deepspeed.init_distributed(dist_backend="gloo")
    size = torch.rand(480, 3)
    weight = size.prod(1, keepdim=True) * 12
    model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
    engine, _, loader, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        training_data=TensorDataset(size, weight),
        config=ds_config(),
    )
    best = float("inf")
    for epoch in range(args.epochs):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(engine(x), y)
            engine.backward(loss)
            engine.step()
            total += loss.item()
        if engine.global_rank == 0 and total < best:
            best = total
            engine.save_checkpoint(args.output, tag="best", client_state={"epoch": epoch})
            print(f"epoch {epoch}: saved, {total / len(loader):.4f}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
