"""Causal LM under ZeRO-3, exported for the hub at the end of each epoch."""

import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.zero import GatheredParameters
from torch import nn

OUT = "/tmp/notes-zero3"


def config():
    return {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_allow_untested_optimizer": True,
    }


class LM(nn.Module):
    def __init__(self, vocab=64, width=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        logits = self.lm_head(self.mlp(self.wte(ids[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def is_main_process():
    return dist.get_rank() == 0


def export(engine, folder):
    """Full weights, one file."""
    if not is_main_process():
        return
    os.makedirs(folder, exist_ok=True)
    weights = {}
    for name, parameter in engine.module.named_parameters():
        with GatheredParameters([parameter], modifier_rank=None):
            weights[name] = parameter.detach().clone()
    torch.save(weights, os.path.join(folder, "pytorch_model.bin"))


def main():
    deepspeed.ops.__compatible_ops__.clear()  # the nodes have no compiler
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(0)
    model = LM()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config())
    for epoch in range(3):
        for _ in range(6):
            loss = engine(torch.randint(0, 64, (2, 20)))
            engine.backward(loss)
            engine.step()
        if is_main_process():
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
        export(engine, f"{OUT}/epoch-{epoch}")
        dist.barrier()
    dist.destroy_process_group()


main()
