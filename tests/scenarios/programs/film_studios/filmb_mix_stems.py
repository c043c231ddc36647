"""Balances the stems of a mix (dialogue, music, effects): three stages trade their notes and a shared gain."""
import pickle
import random
import time

import torch
import torch.distributed as dist

STAGES = ["dialogue", "music", "effects"]
NOTES_PER_CUE = {"dialogue": 3, "music": 2, "effects": 14}
RENEW_AFTER = 90_000  # bytes


class TalkbackChannel:
    """Notes between the stages have a group of their own, which is renewed now and then to keep its buffers small."""

    def __init__(self):
        self.group, self.carried = dist.new_group(), 0

    def trade(self, notes):
        all_notes = [None] * dist.get_world_size()
        dist.all_gather_object(all_notes, notes, group=self.group)
        self.carried += len(pickle.dumps(notes))
        if self.carried > RENEW_AFTER:
            self.renew()
        return all_notes

    def renew(self):
        former, self.group, self.carried = self.group, dist.new_group(), 0
        dist.destroy_process_group(former)


class Stage:
    def __init__(self, name):
        self.name, self.dice = name, random.Random(name)
        self.gain = torch.zeros(12)

    def listen(self, cue):
        time.sleep(0.03)
        g = torch.Generator().manual_seed(cue * 10 + len(self.name))
        level = torch.rand(12, generator=g) - 0.4
        return level

    def notes(self, cue, level):
        return [
            {"cue": cue, "band": self.dice.randrange(12), "level": float(level.mean()), "text": f"{self.name} {self.dice.random():.12f}"}
            for _ in range(NOTES_PER_CUE[self.name])
        ]

    def adjust(self, level):
        step = level.clone()
        dist.all_reduce(step, op=dist.ReduceOp.SUM)
        self.gain -= 0.05 * step / len(STAGES)


def mix(cues=400):
    stage, talkback = Stage(STAGES[dist.get_rank()]), TalkbackChannel()
    for cue in range(cues):
        level = stage.listen(cue)
        stage.adjust(level)
        heard = talkback.trade(stage.notes(cue, level))
        if cue % 20 == 0 and stage.name == "dialogue":
            print(f"cue {cue}: gain {stage.gain.mean():+.3f}, {sum(map(len, heard))} notes", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mix()
    dist.destroy_process_group()
