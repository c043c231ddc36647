"""Accelerate: prompts are split between the processes, each answers its own, and the scores are gathered one by one."""

import torch
from accelerate import Accelerator
from torch import nn

PROMPTS = [f"What is the capital of country {n}?" for n in range(31)]


class Answerer(nn.Module):
    """Scores the next character for as long as the answer is."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 16)
        self.cell = nn.GRUCell(16, 16)
        self.head = nn.Linear(16, 128)

    @torch.no_grad()
    def answer(self, prompt: str, length: int) -> tuple[str, torch.Tensor]:
        """Greedy decoding; returns the text and its mean log probability."""
        state, text, total = torch.zeros(1, 16), "", torch.zeros(1)
        for character in prompt:
            state = self.cell(self.embedding(torch.tensor([ord(character)])), state)
        for _ in range(length):
            score, token = self.head(state).log_softmax(-1).max(-1)
            total, text = total + score, text + chr(int(token))
            state = self.cell(self.embedding(token), state)
        return text, total / length


def main() -> None:
    """Answer everything."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Answerer().to(accelerator.device).eval()
    scores: list[float] = []
    with accelerator.split_between_processes(PROMPTS) as mine:
        for number, prompt in enumerate(mine):
            _, score = model.answer(prompt, length=20)
            scores += accelerator.gather(score).tolist()
            if accelerator.is_main_process:
                print(f"{number + 1} of {len(mine)}", flush=True)
    accelerator.wait_for_everyone()
    accelerator.print(f"mean score {sum(scores) / len(scores):.3f}")


if __name__ == "__main__":
    main()
