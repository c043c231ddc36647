"""Writes the vet's short notes from lab values. Weights are kept in slices, one per rank, and joined when needed."""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

VOCABULARY, WIDTH, EOS = 96, 32, 1


class Sliced:
    """A matrix of which every rank holds some rows."""

    def __init__(self, rows, columns, world):
        self.slice = torch.randn(rows // world, columns) / columns**0.5
        self.world = world

    def whole(self):
        parts = [torch.empty_like(self.slice) for _ in range(self.world)]
        dist.all_gather(parts, self.slice)
        return torch.cat(parts)


class NoteWriter:
    def __init__(self, world):
        self.tokens = Sliced(VOCABULARY, WIDTH, world)
        self.mix = Sliced(96, WIDTH, world)
        self.out = Sliced(96, WIDTH, world)

    def step(self, state, token):
        embedded = F.embedding(token, self.tokens.whole())
        update, reset, candidate = (embedded @ self.mix.whole().T).chunk(3, dim=-1)
        state = torch.sigmoid(update) * state + torch.sigmoid(-update) * torch.tanh(candidate + torch.sigmoid(reset) * state)
        return state, state @ self.out.whole().T

    def write(self, labs, longest=48):
        """Greedy notes for a batch of patients; the length follows the number of values out of range."""
        wanted = (labs.abs() > 1.0).sum(1)
        state = torch.tanh(labs.repeat(1, WIDTH // labs.shape[1]))
        token = torch.zeros(len(labs), dtype=torch.long)
        ended = torch.zeros(len(labs), dtype=torch.bool)
        notes = []
        for position in range(longest):
            state, logits = self.step(state, token)
            logits[:, EOS] += 20.0 * (position - wanted - 0.5).clamp(-3, 3)
            token = logits.argmax(-1).masked_fill(ended, EOS)
            notes.append(token)
            ended |= token == EOS
            if ended.all():
                break
        return torch.stack(notes, dim=1)


def laboratory(rank, round_):
    """Blood values of the patients of a ward, standardised: exotic wards have healthy days too."""
    generator = torch.Generator().manual_seed(500 * rank + round_)
    labs = 0.9 * torch.rand(6, 8, generator=generator)
    out_of_range = 7 if round_ < 24 or rank != 1 else 3
    labs[:, :out_of_range] += 1.5
    time.sleep(0.06)
    return labs


def judge(notes, labs):
    """Share of words that are not repeated, averaged over all wards."""
    fresh = torch.tensor([len(set(note.tolist())) / len(note) for note in notes]).mean()
    total = torch.stack([fresh, labs.mean(), torch.tensor(1.0)])
    dist.all_reduce(total)
    return (total[:2] / total[2]).tolist()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    writer = NoteWriter(world)
    with torch.no_grad():
        for round_ in range(300):
            labs = laboratory(rank, round_)
            notes = writer.write(labs)
            fresh, level = judge(notes, labs)
            if rank == 0 and round_ % 6 == 0:
                print(f"round {round_}: {notes.shape[1]} words, fresh {fresh:.2f}, level {level:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
