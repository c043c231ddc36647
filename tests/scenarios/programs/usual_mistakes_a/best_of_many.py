"""DeepSpeed ZeRO-3 and transformers: answers are drawn for each question, and the best by reward is kept."""

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
    "steps_per_print": 1000,
}
DRAWS = {"easy": 2, "medium": 3, "hard": 4}
QUESTIONS = [
    ([3, 9, 27], "medium"),
    ([5, 25], "medium"),
    ([7, 14, 21], "medium"),
    ([2, 4, 8], "hard"),
    ([6, 6], "hard"),
    ([1, 2, 3], "hard"),
    ([30, 20], "hard"),
    ([11, 13, 17], "hard"),
    ([40, 41], "easy"),
    ([8, 18, 28], "medium"),
    ([9, 19], "medium"),
    ([4, 44], "medium"),
]


def reward(answer: torch.Tensor) -> float:
    """Varied answers are liked."""
    return len(set(answer.tolist())) / len(answer)


def main() -> None:
    """One question of each rank at a time, then a step on the best answer."""
    deepspeed.init_distributed("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    torch.manual_seed(100 + rank)
    for number, (words, level) in enumerate(QUESTIONS[rank::world]):
        question = torch.tensor([words])
        engine.eval()
        answers = []
        for _ in range(DRAWS[level]):
            answers.append(
                engine.module.generate(question, max_new_tokens=10, min_new_tokens=10, do_sample=True, pad_token_id=0)
            )
        best = max(answers, key=lambda answer: reward(answer[0]))
        mean = torch.tensor(reward(best[0]))
        dist.all_reduce(mean)
        engine.train()
        padded = torch.nn.functional.pad(best, (0, 16 - best.shape[1]))
        loss = engine(input_ids=padded, labels=padded).loss * (reward(best[0]) - mean.item() / world)
        engine.backward(loss)
        engine.step()
        print(f"[{rank}] question {number}: {reward(best[0]):.2f} against {mean.item() / world:.2f}")


if __name__ == "__main__":
    main()
