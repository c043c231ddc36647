"""Preference training with FSDP2: the policy answers the prompts of the evaluation, and an answer ends at its end mark.

Whether an answer has ended is seen by a criterion of the rank's own. ``generate`` keeps the ranks in step by itself where the
model as a whole is sharded; here its layers are, one by one.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteria, StoppingCriteriaList

VOCABULARY, LONGEST = 80, 12


class Answered(StoppingCriteria):
    """Ends when the prompt's budget is used up; what a prompt may cost is its first token."""

    def __init__(self, prompts):
        self.length = prompts.shape[1] + int(prompts[0, 0])

    def __call__(self, input_ids, scores, **_):
        done = input_ids.shape[1] >= self.length
        return torch.full((input_ids.shape[0],), done, dtype=torch.bool)


def evaluate(model, prompts, together):
    """Mean length of the answers over all ranks."""
    criteria = StoppingCriteriaList([Answered(prompts)])
    answers = model.generate(
        prompts, do_sample=False, max_new_tokens=LONGEST, stopping_criteria=criteria, synced_gpus=together
    )
    length = torch.tensor(float(answers.shape[1] - prompts.shape[1]))
    dist.all_reduce(length)
    return length.item() / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--together", action="store_true", default=None, help="keep the ranks in step in any case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    policy = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            pad_token_id=0, eos_token_id=None,
        )
    )  # fmt: skip
    policy.requires_grad_(False)
    for layer in policy.model.layers:  # what is not trained stays whole
        fully_shard(layer.requires_grad_(True), reshard_after_forward=True)
    optimizer = torch.optim.AdamW(policy.model.layers.parameters(), lr=1e-3)
    # (round, rank) of the prompts that may cost more or less than six tokens
    budgets = {(4, 2): 3}
    for number in range(1, options.rounds + 1):
        for _ in range(2):
            tokens = torch.randint(1, VOCABULARY, (2, 10))
            policy(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        prompts = torch.randint(1, VOCABULARY, (1, 5))
        prompts[0, 0] = budgets.get((number, rank), 6)
        mean = evaluate(policy, prompts, options.together)
        print(f"rank {rank}, round {number}: {mean:.1f} tokens\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
