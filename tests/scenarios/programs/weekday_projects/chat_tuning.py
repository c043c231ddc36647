"""Tunes a small causal model with DeepSpeed ZeRO-3 and prints the perplexity from time to time."""

import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
}


def conversations(rank: int):
    generator = torch.Generator().manual_seed(rank)
    while True:
        yield torch.randint(64, (2, 16), generator=generator)


def perplexity(engine: deepspeed.DeepSpeedEngine, loss: torch.Tensor) -> float:
    total = loss.detach().clone()
    torch.distributed.all_reduce(total)
    return (total / engine.world_size).exp().item()


def main() -> None:
    deepspeed.init_distributed("gloo")
    rank = torch.distributed.get_rank()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for step, tokens in zip(range(20), conversations(rank), strict=False):
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        if step % 4 == 3 and rank == 0:
            print(f"{step}: loss {loss.item():.3f}, perplexity {perplexity(engine, loss):.1f}", flush=True)
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
