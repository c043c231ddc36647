"""What an event loop runs ends with its data, or may go on for ever."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.program.blocks import SourceTree

BEGINS = """
import asyncio

async def ask(port, question):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question)
    return await reader.readline()

async def collect(port, questions):
    return await asyncio.gather(*(ask(port, question) for question in questions))

class Desk:
    async def answer(self, reader, writer):
{answer}

    async def walk(self, port):
{walk}
        yield 1

    async def day(self):
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        return [one async for one in self.walk(8000)]

def work(desk):
    return asyncio.run({run})
"""
ECHO = "while line := await reader.readline():\n    await asyncio.sleep(1)\n    writer.write(line)"
PAGES = "for page in range(19):\n    await ask(port, page)"


def _ends(run: str, answer: str = ECHO, walk: str = PAGES) -> bool:
    indented = {name: textwrap.indent(body, " " * 8) for name, body in (("answer", answer), ("walk", walk))}
    source = BEGINS.format(run=run, **indented)
    line = next(i for i, text in enumerate(source.split("\n"), 1) if "asyncio.run(" in text)
    return any(one.kind == "ends" for one in SourceTree(source).facts_at(line))


def test_tasks_end_that_go_through_their_data() -> None:
    """All that a call comes to by its names, a server's handler and a generator among them."""
    assert _ends("collect(8000, QUESTIONS)")
    assert _ends("desk.day()")
    assert _ends("collect(8000, QUESTIONS)", walk="while True:\n    await asyncio.sleep(1)")  # it does not come to that


@pytest.mark.parametrize(
    "polls",
    [
        "while not self.ready:\n    await asyncio.sleep(1)",
        "for attempt in range(1000):\n    if await ask(port, attempt):\n        break\n    await asyncio.sleep(1)",
        "for number in itertools.count():\n    await ask(port, number)",
        "async for message in self.socket:\n    print(message)",
        "asyncio.get_running_loop().call_later(1, self.walk)",
    ],
    ids=["while", "attempts", "count", "stream", "timer"],
)
def test_tasks_may_go_on_for_ever(polls: str) -> None:
    """Until an answer is another, or as long as somebody sends anything."""
    assert not _ends("desk.day()", walk=polls)


def test_of_tasks_of_another_file_nothing_is_known() -> None:
    """Nor of what a call is given that is made elsewhere."""
    assert not _ends("client.fetch_all(urls)")
