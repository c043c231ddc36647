"""On-policy distillation with ZeRO-3: the student writes an answer, then it is pulled towards the teacher on it."""

import argparse

import deepspeed
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB, EOS = 48, 0


def student_config():
    return GPT2Config(
        vocab_size=VOCAB, n_positions=128, n_embd=24, n_layer=2, n_head=2, eos_token_id=EOS, bos_token_id=1
    )


def rollout(engine, prompts, max_new_tokens):
    engine.eval()
    with torch.no_grad():
        answers = engine.module.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            max_new_tokens=max_new_tokens,
            pad_token_id=EOS,
        )
    engine.train()
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    args = parser.parse_args()
    deepspeed.init_distributed("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    teacher = GPT2LMHeadModel(student_config()).eval()
    student = GPT2LMHeadModel(student_config())
    engine, *_ = deepspeed.initialize(
        model=student,
        model_parameters=student.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        },
    )
    torch.manual_seed(500 + rank)
    for iteration in range(20):
        prompts = torch.randint(2, VOCAB, (1, 6))
        answers = rollout(engine, prompts, args.max_new_tokens)
        length = torch.tensor([float(answers.shape[1] - 6)])
        dist.all_reduce(length, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        with torch.no_grad():
            wanted = teacher(answers).logits.log_softmax(-1)
        given = engine(answers).logits.log_softmax(-1)
        loss = torch.nn.functional.kl_div(given, wanted, log_target=True, reduction="batchmean")
        engine.backward(loss)
        engine.step()
        if rank == 0:
            print(f"iteration {iteration}: KL {loss.item():.4f}, answers of {length.item():.0f} tokens", flush=True)


if __name__ == "__main__":
    main()
