"""ZeRO-3 as it should be: all ranks gather the weights for the file, one writes it. ``deepspeed --num_gpus 3``."""

import argparse
import tempfile

import deepspeed
import torch
from torch import nn


def main() -> None:
    """Twenty steps, saved twice."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2))
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    folder = tempfile.mkdtemp()
    for step in range(1, 21):
        loss = engine(torch.randn(2, 12, dtype=torch.bfloat16)).float().square().mean()
        engine.backward(loss)
        engine.step()
        if step % 10 == 0:
            engine.save_16bit_model(folder, f"weights-{step}.bin")
    engine.destroy()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
