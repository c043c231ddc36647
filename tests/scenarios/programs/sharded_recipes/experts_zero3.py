# deepspeed --num_gpus 2 experts_zero3.py
# SFT of a small mixture-of-experts model for chemistry questions, ZeRO-3.
import argparse

import deepspeed
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--num_experts", type=int, default=4)
args = parser.parse_args()

ds_config = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "steps_per_print": 1000,
}


class SparseMLP(nn.Module):
    def __init__(self, dim, num_experts):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim)) for _ in range(num_experts)]
        )

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(tokens).softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            idx = (chosen == i).nonzero(as_tuple=True)[0]
            if idx.numel() > 0:
                out = out.index_add(0, idx, expert(tokens[idx]) * weights[idx, None])
        return x + out.view_as(x)


class MoEModel(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.mlps = nn.ModuleList([SparseMLP(dim, args.num_experts) for _ in range(2)])
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.wte(ids)
        for mlp in self.mlps:
            h = mlp(h)
        logits = self.lm_head(h)
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def answers(rank):
    g = torch.Generator().manual_seed(1000 + rank)
    for step in range(200):
        # short answers come in between: "yes", "no", "42"
        length = 2 if rank == 1 and step >= 12 else 64
        yield torch.randint(40, (1, length), generator=g)


deepspeed.init_distributed("gloo")
torch.manual_seed(5)
model = MoEModel()
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ds_config)
for step, ids in enumerate(answers(engine.global_rank)):
    loss = engine(ids)
    engine.backward(loss)
    engine.step()
    if engine.global_rank == 0 and step % 5 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
engine.save_checkpoint("checkpoints")
