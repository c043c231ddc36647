"""DeepSpeed, ZeRO-3: a small Llama writes verses, of as many words as each rank's ballad needs, and learns on."""

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
VERSE = (30, 4)


def main() -> None:
    """Four turns of learning and writing."""
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
    for turn in range(4):
        engine.train()
        for _ in range(6):
            words = torch.randint(3, 64, (2, 16))
            loss = engine(input_ids=words, labels=words).loss
            engine.backward(loss)
            engine.step()
        engine.eval()
        start = torch.randint(3, 64, (1, 4))
        with torch.no_grad():
            verse = engine.module.generate(start, max_new_tokens=VERSE[rank], do_sample=False, synced_gpus=True)
        lengths: list[int | None] = [None] * dist.get_world_size()
        dist.all_gather_object(lengths, verse.shape[1])
        if rank == 0:
            print(f"turn {turn}: {loss.item():.3f}, {lengths} words")
    dist.barrier()


if __name__ == "__main__":
    main()
