"""Continues the pretraining of a code model with DeepSpeed ZeRO-1."""

import argparse
import tempfile

import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=10)
    return parser.parse_args()


def files(rank: int):
    generator = torch.Generator().manual_seed(90 + rank)
    while True:
        yield torch.randint(96, (2, 24), generator=generator)


def main() -> None:
    options = parse()
    deepspeed.init_distributed("gloo")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=24, n_embd=16, n_layer=1, n_head=2))
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {"stage": 1},
            "optimizer": {"type": "AdamW", "params": {"lr": 5e-4, "torch_adam": True}},
        },
    )
    folder = tempfile.mkdtemp(prefix="code-")
    source = files(engine.global_rank)
    for step in range(1, options.steps + 1):
        tokens = next(source)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
            if step % options.save_every == 0:
                engine.save_checkpoint(folder, tag=f"step{step}", client_state={"step": step})
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
