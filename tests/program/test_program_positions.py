"""Which variables tell how far a loop is in its data, and that their values are kept of none."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from hangwatch.model.stacks import Position
from hangwatch.program.blocks import SourceTree
from hangwatch.sources.stacks.locals import digest_value, may_tell
from hangwatch.sources.stacks.samples import parse_pyspy
from hangwatch.sources.stacks.source_lines import SourceLines


def _holders(*body: str, line: int = 0) -> set[tuple[str, bool, bool]]:
    """They at a line of a function, counted from its first one (0: at the last), with what may tell: numbers, objects."""
    tree = SourceTree("\n".join(["def work():", *(f"    {one}" for one in body)]))
    return {(h.name, h.numbers, h.objects) for h in tree.holders_at(1 + (line or len(body)))}


@pytest.mark.parametrize(
    ("body", "held"),
    [
        (["for url in urls:", "    fetch(url)", "    sleep(1)"], {("url", True, True)}),
        (["for i, (a, *b) in pairs():", "    fetch(a)", "    sleep(1)"], {(n, True, True) for n in "iab"}),
        (["for n in range(90):", "    done['n'] = n + 1", "    sleep(1)"], {("n", True, True)}),
        (["for n in range(90):", "    ready = n + 1", "    sleep(1)"], set()),
        # Something else may end it: then what it is about has to be worked on, and a number may be an attempt.
        (["for url in urls:", "    if not fetch(url):", "        break", "    save(url)"], {("url", False, True)}),
        (["for peer in peers:", "    if ready(peer):", "        break", "    sleep(1)"], set()),
        (["for delay in delays:", "    if ready():", "        return", "    sleep(delay)"], set()),
        (["for _ in bar(range(600)):", "    if ready():", "        return", "    sleep(1)"], set()),
        (["for delay in delays:", "    print(delay)", "    sleep(delay)"], set()),
        (["for peer in cycle(peers):", "    ask(peer)", "    sleep(1)"], set()),
        # Results of others' work, whatever is made of them here.
        (["for n, won in enumerate(pool.imap(play, jobs), 1):", "    total += won"], {("n", True, True), ("won", True, True)}),
        (["for done in as_completed(tasks):", "    print(done)"], {("done", True, True)}),
        (["for n in attempts():", "    print(n)"], set()),
        # What a condition asks for items, and something takes out.
        (["while pending:", "    url = pending.popleft()", "    fetch(url)", "    sleep(1)"], {("url", True, True)}),
        (["while self.pending:", "    n = self.pending.pop()", "    fetch(n)", "    sleep(1)"], {("n", True, True)}),
        (["while len(heap) > 0:", "    cost, n = heappop(heap)", "    go(n)", "    sleep(1)"], {("n", True, True)}),
        (["while not tasks.empty():", "    t = tasks.get()", "    run(t)", "    sleep(1)"], {("t", True, True)}),
        # What comes in.
        (["while line := stream.readline():", "    lines.append(line)", "    sleep(1)"], {("line", False, False)}),
        (["while True:", "    item = q.get()", "    if not item:", "        break", "    run(item)"], {("item", False, False)}),
        # Polls.
        (["while not os.path.exists(path):", "    sleep(1)"], set()),
        (["while not ready():", "    tries += 1", "    delay = min(2 * delay, 60)", "    sleep(delay)"], set()),
        (["while not ready():", "    delay = backoff()", "    sleep(delay)", "    waited += delay"], set()),
        (["while not done():", "    now = time.strftime('%X')", "    beat(now)", "    sleep(1)"], set()),
        (["while True:", "    sample = draw()", "    if good(sample):", "        return sample"], set()),
        # Polls whose answer may tell that something gets on.
        (["while True:", "    state = client.get()", "    if state == 'done':", "        break", "    sleep(1)"],
         {("state", False, False)}),
        (["while True:", "    line = log.readline()", "    if 'done' in line:", "        break", "    sleep(1)"],
         {("line", False, False)}),
        (["while not done():", "    code, answer = ask()", "    sleep(1)"], {("code", False, False), ("answer", False, False)}),
        (["while there < size:", "    sleep(1)", "    there = path.stat().st_size if path else 0"], {("there", True, False)}),
        (["while last < wells:", "    last = robot.position.value", "    sleep(1)"], {("last", True, False)}),
        (["while last < limit:", "    self.tries += 1", "    last = self.tries", "    sleep(1)"], set()),
        (["while (left := count()) > 0:", "    sleep(1)"], {("left", True, False)}),
        (["for _ in range(tries):", "    body = ask()", "    if body.done:", "        return body", "    sleep(1)"],
         {("body", False, False)}),
        (["for _ in range(tries):", "    body = ask()", "    sleep(1)"], {("_", True, True)}),
        (["for state in iter(ask, 'done'):", "    sleep(1)"], {("state", False, False)}),
        (["for page in iter(pages.pop, None):", "    store(page)", "    sleep(1)"], {("page", True, True)}),
        (["next(size for size in sizes() if size >= whole)"], {("size", True, False)}),
        (["next(state for state in states() if state == 'done')"], {("state", False, False)}),
        (["while song in heard:", "    song = draw()"], set()),
        (["while now < until:", "    sleep(1)", "    now = time.monotonic()"], set()),
        # By what it asks for the next page.
        (["while page is not None:", "    site.ask(f'/{page}')", "    answer = loads(site.read())", "    page = answer['more']"],
         {("page", True, False)}),
        (["while True:", "    keys, cursor = scan(cursor)", "    if not cursor:", "        break"], {("cursor", True, False)}),
        (["while url:", "    with open(url) as answer:", "        page = load(answer)", "    url = page.links['next']"],
         {("url", True, False)}),
        (["while more:", "    query['from'] = at", "    rows = ask(query)", "    at = rows[-1].id if rows else at"],
         {("at", True, False)}),
        (["while not ready():", "    sleep(delay)", "    delay = backoff(delay)"], set()),
        (["while not ready():", "    pause = jitter(delay)", "    sleep(pause)", "    delay = backoff(delay)"],
         {("delay", False, False)}),
        (["while not ready():", "    print(state)", "    state = ask(job)"], set()),
        (["while not ready():", "    n = n + 1", "    ask(n)"], set()),
        # What is collected.
        (["while not done:", "    screen, won, done = play()", "    total += won", "    screens.append(screen)"],
         {("total", True, False), ("screen", False, True)}),
    ],
)  # fmt: skip
def test_what_an_iteration_is_about(body: list[str], held: set[tuple[str, bool, bool]]) -> None:
    """An item of a sequence, what was taken out of a container, or what came in; no attempt, no delay and no time."""
    assert _holders(*body) == held


def test_a_loop_that_waits_for_its_next_item_is_in_its_header() -> None:
    """So is one over a generator that sleeps."""
    assert _holders("for day in pages():", "    work(day)", line=1) == {("day", True, True)}
    assert _holders("for day in pages():", "    work(day)", "work()", line=3) == set()


def test_comprehensions_are_loops() -> None:
    """But whoever goes through a generator may stop before its data end."""
    assert _holders("pages = [fetch(url) for url in urls]") == {("url", True, True)}
    assert _holders("found = any(fetch(url) for url in urls)") == {("url", False, False)}


def test_a_script_has_loops_as_well() -> None:
    """Which of them end with their data is known outside of functions too, where py-spy shows no variables."""
    tree = SourceTree("for url in urls:\n    fetch(url)\n    sleep(1)\nfor n in count():\n    fetch(n)\n")
    assert [block.exhausts for block in tree.blocks_at(3)] == [True]
    assert [block.exhausts for block in tree.blocks_at(5)] == [False]


@pytest.mark.parametrize(
    ("body", "empties"),
    [
        (["while q:", "    x = q.popleft()", "    work(x)", "    sleep(1)"], True),
        (["while q:", "    x = q.popleft()", "    q.extend(links(x))", "    sleep(1)"], True),
        (["while len(heap) > 0:", "    cost, x = heappop(heap)", "    work(x)", "    sleep(1)"], True),
        (["while not q.empty():", "    x = q.get()", "    work(x)", "    sleep(1)"], True),
        (["while q:", "    x = q.popleft()", "    if not work(x):", "        q.append(x)", "    sleep(1)"], False),
        (["while q:", "    x = q.popleft()", "    q.append((x, work(x)))", "    sleep(1)"], False),
        (["while heap:", "    x = heappop(heap)", "    heappush(heap, (time(), x))", "    sleep(1)"], False),
        (["while q:", "    if ready(q[0]):", "        x = q.popleft()", "    work()", "    sleep(1)"], False),
        (["while q:", "    x = q.popleft()", "    if work(x):", "        break", "    sleep(1)"], False),
        (["while q:", "    x = other.popleft()", "    work(x)", "    sleep(1)"], False),
        (["while not done:", "    x = q.popleft()", "    work(x)", "    sleep(1)"], False),
    ],
)
def test_a_loop_that_empties_its_container_ends(body: list[str], empties: bool) -> None:
    """But not if what it takes out goes back."""
    blocks = SourceTree("\n".join(body)).blocks_at(len(body))
    assert [block.exhausts for block in blocks if block.kind == "while"] == [empties]


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        (["while left > 0:", "    fly()", "    left -= speed / 20", "    sleep(1)"], True),
        (["while page < pages:", "    read(page)", "    page += 2", "    sleep(1)"], True),
        (["while seen < size:", "    seen += read(file)", "    sleep(1)"], False),
        (["while left > 0:", "    if fly():", "        left -= 1", "    sleep(1)"], False),
        (["while left > 0:", "    left = ask()", "    sleep(1)"], False),
        (["while left > 0:", "    fly()", "    left += speed", "    sleep(1)"], False),
        (["while tries < 900:", "    if ready():", "        break", "    tries += 1", "    sleep(1)"], False),
        (["while True:", "    job = pipe.recv()", "    if job is None:", "        return", "    work(job)"], True),
        (["while True:", "    job = pipe.recv()", "    if work(job):", "        return", "    sleep(1)"], False),
        (["while True:", "    job = box.get()", "    if not job:", "        break", "    sleep(1)"], False),
        (["while True:", "    job = box.get()", "    if job is None:", "        continue", "    sleep(1)"], False),
        (["while True:", "    job = ask(server)", "    if job is None:", "        return", "    sleep(1)"], False),
    ],
)
def test_a_loop_that_counts_or_takes_what_it_is_sent_ends(body: list[str], ends: bool) -> None:
    """If each iteration does, and nothing else ends it: else it asks until the answer is another."""
    source = "\n".join(["def run():", *(f"    {line}" for line in body)])
    blocks = SourceTree(source).blocks_at(len(body) + 1)
    assert [block.exhausts for block in blocks if block.kind == "while"] == [ends]


@pytest.mark.parametrize(
    ("description", "told"),
    [
        ("str(12)", True), ("tuple[str, int]", True), ("dict[url: str]", True),
        ("int", False), ("int=3", False), ("float", False), ("Reply", False), ("bytes", False),
        ("None", None), ("bool", None), ("?", None), ("", None),
    ],
)  # fmt: skip
def test_what_kind_of_value_may_tell(description: str, told: bool | None) -> None:
    """None and booleans are no items; numbers and objects are where the loop is known to go over data."""
    assert may_tell(description, numbers=False, objects=False) is bool(told)
    assert may_tell(description, numbers=True, objects=True) is (told is not None)


def test_of_a_value_nothing_but_its_digest_is_kept(tmp_path: Path) -> None:
    """And that only of variables that hold what a loop is about."""
    path = tmp_path / "crawl.py"
    path.write_text("def crawl(urls, key):\n    for url in urls:\n        fetch(url, key)\n        sleep(1)\n")
    held = {"urls": '["http://a.example"]', "key": '"plum"', "url": '"http://a.example"'}

    def frame(line: int) -> dict[str, object]:
        shown = [{"name": name, "repr": text} for name, text in held.items()]
        return {"name": "crawl", "filename": str(path), "line": line, "locals": shown}

    data = msgspec.json.encode([{"frames": [frame(4), frame(1)], "os_thread_id": os.getpid()}])
    sample = parse_pyspy(data, at_ns=1, pid=os.getpid(), unsettled=True)
    settled = asyncio.run(SourceLines().attach({os.getpid(): sample}))[os.getpid()]
    inner, outer = settled.threads[0].frames
    assert inner.positions == (Position("url", 2, digest_value(held["url"])),)
    assert outer.positions == ()
    kept = msgspec.json.encode(settled).decode()
    assert "example" not in kept
    assert "plum" not in kept
    assert digest_value(held["key"]) not in kept
    path.unlink()
    unread = asyncio.run(SourceLines().attach({os.getpid(): sample}))[os.getpid()]
    assert all(one.positions == () for one in unread.threads[0].frames)
