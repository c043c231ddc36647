"""DeepSpeed, ZeRO-3: a small Llama continues a keeper's notes, and is asked between the epochs to write some itself."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "stage3_max_live_parameters": 0,
        "stage3_max_reuse_distance": 0,
    },
    "steps_per_print": 1000,
}
NOTES = {0: 24, 1: 9, 2: 24}


def main() -> None:
    """Two epochs; then each rank has a note written that is as long as the keeper's own."""
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            eos_token_id=None,
            pad_token_id=0,
        )
    )
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    torch.manual_seed(rank)
    for epoch in range(2):
        engine.train()
        for _ in range(6):
            words = torch.randint(3, 64, (2, 16))
            loss = engine(input_ids=words, labels=words).loss
            engine.backward(loss)
            engine.step()
        engine.eval()
        keeper = torch.randint(3, 64, (1, NOTES[rank]))
        with torch.no_grad():
            note = engine.module.generate(keeper[:, :4], max_new_tokens=keeper.shape[1] - 4, do_sample=False)
        alike = (note == keeper).sum().float()
        dist.all_reduce(alike)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}, {alike.item():.0f} words alike")


if __name__ == "__main__":
    main()
