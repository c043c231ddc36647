"""Policy optimisation with FSDP (version 1) around a small Llama; between updates every rank samples answers.

``synced_gpus=False`` came over from an example for one device. Run by ``torchrun --nproc-per-node 3``.
"""

import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


class Policy:
    """The sharded model and how it is sampled from."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=40,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
        self.model = FullyShardedDataParallel(
            LlamaForCausalLM(config), auto_wrap_policy=wrap, device_id=torch.device("cpu")
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def rollout(self, prompts: torch.Tensor, budget: int) -> torch.Tensor:
        """Answers of at most ``budget`` tokens."""
        self.model.eval()
        with torch.no_grad(), FullyShardedDataParallel.summon_full_params(self.model, recurse=False):
            answers = self.model.module.generate(
                prompts, max_new_tokens=budget, min_new_tokens=budget, do_sample=True, synced_gpus=False
            )
        self.model.train()
        return answers

    def update(self, answers: torch.Tensor) -> None:
        """One step of likelihood."""
        self.model(input_ids=answers, labels=answers).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main() -> None:
    """Prompts of rank 1's domain leave less room from the fourth round on."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    policy = Policy()
    policy.update(torch.randint(3, 40, (2, 8)))
    for round_ in range(12):
        longer = 4 if rank == 1 and round_ >= 3 else 0
        prompts = torch.randint(3, 40, (2, 6 + longer))
        answers = policy.rollout(prompts, budget=20 - prompts.shape[1])
        tokens = torch.tensor([answers.numel()])
        dist.all_reduce(tokens)
        policy.update(answers)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
