"""DeepSpeed's pipeline engine, each end of the pipeline with a stream of its own: inputs at the first stage, labels at the last.

The input stream leaves out documents that are too long, so the first stage runs out first. ``train_batch`` raises StopIteration
there, which ends the loop as the manual says, and the other stages wait for activations. ``torchrun --nproc-per-node 3``.
"""

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.pipe import PipelineModule
from torch import nn

CONFIG = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "steps_per_print": 1000,
}


def stream(rank, documents=50):
    """Micro-batches of (inputs, labels); of the pair each stage uses its own half."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(documents):
        length = int(torch.randint(1, 100, (1,), generator=generator))
        inputs = torch.randn(4, 16, generator=generator)
        if rank == 0 and length > 80:
            continue
        yield inputs, inputs.sum(1, keepdim=True)


def main():
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 1)]
    model = PipelineModule(layers=layers, num_stages=3, loss_fn=nn.MSELoss())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=CONFIG)
    batches = stream(rank)
    step = 0
    while True:
        try:
            engine.train_batch(data_iter=batches)
        except StopIteration:
            break
        step += 1
        print(f"rank {rank}: step {step}\n", end="", flush=True)
    dist.barrier()
    print(f"rank {rank}: trained {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
