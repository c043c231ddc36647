"""A cohort of examiners marks scripts. Marks and the examiners' workload are shared while the batch is being read."""
import asyncio
import logging
import re
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

logger = logging.getLogger("marks")
WORD = re.compile(r"[a-z]+")


@dataclass
class Script:
    candidate: int
    text: str


class ScriptSource:
    def __init__(self, examiner: int, batches: int = 40, per_batch: int = 6):
        self.examiner, self.batches, self.per_batch = examiner, batches, per_batch

    def batch(self, index: int):
        generator = torch.Generator().manual_seed(1000 * self.examiner + index)
        lengths = torch.randint(80, 200, (self.per_batch,), generator=generator).tolist()
        if self.examiner == 0 and index == 11:
            lengths[2] = 600_000  # a portfolio
        return [Script(index * 10 + i, "the answer follows from the second law " * n) for i, n in enumerate(lengths)]


class Marker:
    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world
        self.total = torch.zeros(4)

    def read(self, script: Script) -> float:
        seen, repeats = set(), 0
        for word in WORD.finditer(script.text):
            repeats += word.group() in seen
            seen.add(word.group())
        return len(seen) / (1 + repeats) ** 0.5

    def mark(self, scripts):
        """Marks of this examiner's scripts, moderated by everybody's."""
        marks = torch.tensor([self.read(s) for s in scripts])
        summary = torch.stack([marks.mean(), marks.min(), marks.max(), marks.var()])
        dist.all_reduce(summary)
        self.total += summary / self.world
        return marks - summary[0] / self.world

    def share_workload(self, scripts):
        words = torch.tensor([float(sum(len(s.text) for s in scripts)), float(len(scripts))])
        loads = [torch.empty(2) for _ in range(self.world)]
        dist.all_gather(loads, words)
        return torch.stack(loads)

    async def workload(self, scripts):
        await asyncio.sleep(0.25)  # let the reading start
        return await asyncio.to_thread(self.share_workload, scripts)

    async def session(self, scripts):
        marks, loads = await asyncio.gather(asyncio.to_thread(self.mark, scripts), self.workload(scripts))
        return marks, loads


async def exam_board(marker: Marker, source: ScriptSource):
    for index in range(source.batches):
        scripts = source.batch(index)
        started = time.perf_counter()
        marks, loads = await marker.session(scripts)
        if marker.rank == 0 and index % 4 == 0:
            logger.info("batch %d: mean %.3f, %d characters, %.2f s", index, marks.mean(), int(loads[:, 0].sum()), time.perf_counter() - started)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    asyncio.run(exam_board(Marker(rank, world), ScriptSource(rank)))
    logger.info("board closed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
