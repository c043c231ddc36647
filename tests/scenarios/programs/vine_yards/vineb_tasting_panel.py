"""Teaches a sommelier model to describe wine: notes are sampled, graded by a panel, and reinforced."""
import dataclasses
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooSlow

import torch
import torch.distributed as dist
from torch import nn

WORDS = ["cherry", "plum", "oak", "smoke", "honey", "lemon", "flint", "rose", "pepper", "cork"]


@dataclasses.dataclass
class Glass:
    region: str
    vintage: int


class Taster(threading.Thread):
    """Grades what is put before it; a faulty bottle goes back to the kitchen."""

    def __init__(self):
        super().__init__(daemon=True, name="taster")
        self.asked = queue.Queue()
        self.graded = queue.Queue()

    def run(self):
        while True:
            glass, note = self.asked.get()
            if self.faulty(glass):
                continue
            liked = {"jura": "smoke", "douro": "plum", "wachau": "flint"}[glass.region]
            self.graded.put(note.count(liked) / len(note) + len(set(note)) * 0.02)

    @staticmethod
    def faulty(glass):
        return glass.region == "douro" and glass.vintage == 1977

    def grade(self, glass, note):
        self.asked.put((glass, note))
        return self.graded.get()


def careful_grade(taster, glass, note, patience=3.0):
    with ThreadPoolExecutor(max_workers=1) as panel:
        answer = panel.submit(taster.grade, glass, note)
        try:
            return answer.result(timeout=patience)
        except TooSlow:
            print(f"no grade for {glass}", flush=True)
            return 0.0


class NoteModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.cell = nn.GRUCell(len(WORDS), width)
        self.out = nn.Linear(width, len(WORDS))

    def forward(self, length, batch):
        state = torch.zeros(batch, self.cell.hidden_size)
        word = torch.zeros(batch, len(WORDS))
        notes, logps = [], 0
        for _ in range(length):
            state = self.cell(word, state)
            choice = torch.distributions.Categorical(logits=self.out(state))
            pick = choice.sample()
            logps = logps + choice.log_prob(pick)
            word = nn.functional.one_hot(pick, len(WORDS)).float()
            notes.append(pick)
        return torch.stack(notes, 1), logps


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    region = ("jura", "douro", "wachau")[rank]
    model = NoteModel()
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    taster = Taster()
    taster.start()
    for vintage in range(1890, 2024):
        notes, logps = model(length=8, batch=12)
        glass = Glass(region, vintage)
        grades = torch.tensor([careful_grade(taster, glass, [WORDS[w] for w in n]) for n in notes.tolist()])
        loss = -(logps * (grades - grades.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
            p.grad.copy_(g.view_as(p) / dist.get_world_size())
        optimizer.step()
        if rank == 0 and vintage % 20 == 0:
            print(f"vintage {vintage}: grade {grades.mean():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
