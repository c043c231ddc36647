"""The blocks around a line say what has to hold for it to run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.program.blocks import SourceTree

SOURCE = """
def main(rank):
    for step in range(10):
        if rank == 1 and step == 3:
            continue
        try:
            with context() as c, d:
                if (rank
                    == 0):
                    collect()
                elif rank:
                    other()
                else:
                    third()
        except ValueError as error:
            handle()
        finally:
            close()
    else:
        finish()
    match rank:
        case 0 if ready:
            report()
    def inner():
        return deep()
while True: spin()
"""


def _at(line: int) -> list[tuple[str, int, str]]:
    return [(block.kind, block.line, block.text) for block in SourceTree(SOURCE).blocks_at(line)]


def test_blocks_are_listed_from_the_outermost_in() -> None:
    """A collective deep inside a loop has the loop, the guard before it, and each condition, headers on one line."""
    assert _at(10) == [
        ("for", 3, "for step in range(10):"),
        ("guard", 4, "if rank == 1 and step == 3: continue"),
        ("try", 6, "try: .. except ValueError as error:"),
        ("with", 7, "with context() as c, d:"),
        ("if", 8, "if rank == 0:"),
    ]


def test_other_branches_name_their_condition() -> None:
    """An elif is inside the else of what comes before it."""
    assert _at(12)[-2:] == [("else", 8, "if rank == 0:"), ("if", 11, "elif rank:")]
    assert _at(14)[-2:] == [("else", 8, "if rank == 0:"), ("else", 11, "elif rank:")]


def test_every_kind_of_suite_is_known() -> None:
    """Handlers, finally, the else of a loop, a case, and a body on its header's line."""
    assert _at(16)[-1] == ("except", 15, "except ValueError as error:")
    assert _at(18)[-1] == ("finally", 6, "finally:")
    assert _at(20) == [("after", 3, "for step in range(10):")]
    assert _at(23) == [("case", 22, "case 0 if ready:")]
    assert _at(26) == [("while", 26, "while True:")]


@pytest.mark.parametrize("end", ["finally:\n    close()", "except StopIteration:\n    raise RuntimeError"])
def test_a_try_that_does_not_go_on_catches_nothing(end: str) -> None:
    """It is passed by no exception that the program would go on after."""
    blocks = SourceTree(f"try:\n    step()\n{end}\n").blocks_at(2)
    assert [(block.kind, block.text) for block in blocks] == [("with", "try:")]


def test_what_follows_a_try_that_leaves_is_reached_by_its_exception() -> None:
    """A sleep before the next attempt, for example; of several ways past it each may have been taken."""

    def blocks(*handlers: str) -> list[tuple[str, str]]:
        ways = "".join(f"        except {one}\n" for one in handlers)
        source = (
            f"def fetch():\n    while True:\n        try:\n            with open_url() as answer:\n"
            f"                return load(answer)\n{ways}        sleep(pause)\n"
        )
        return [(b.kind, b.text) for b in SourceTree(source).blocks_at(6 + len(handlers))]

    loop = ("while", "while True:")
    assert blocks("HTTPError as error: log(error)") == [loop, ("except", "except HTTPError as error:")]
    assert blocks("HTTPError: log()", "OSError: log()") == [loop, ("except", "except HTTPError: or except OSError:")]
    assert blocks("HTTPError: log()", "OSError: raise") == [loop, ("except", "except HTTPError:")]


def test_a_decorator_that_keeps_results_is_a_guard() -> None:
    """Inside the function there was no result yet; another decorator says nothing."""

    def blocks(decorator: str) -> list[tuple[str, int, str]]:
        source = f"class Prior:\n    @{decorator}\n    def of(self, market):\n        return gather(market)\n"
        return [(block.kind, block.line, block.text) for block in SourceTree(source).blocks_at(4)]

    for decorator in ("functools.lru_cache(maxsize=64)", "cache", "cached_property"):
        assert blocks(decorator) == [("guard", 2, f"@{decorator}: return")]
    assert blocks("torch.no_grad()") == blocks("property") == []


def _saved(*body: str, at: int | None = None) -> list[str]:
    source = "\n".join(["def keep(self):", *(f"    {line}" for line in body)])
    facts = SourceTree(source).facts_at(at or source.count("\n") + 1)
    return [one.text for one in facts if one.kind == "saved"]


def test_a_barrier_is_behind_what_was_saved_just_before() -> None:
    """Whatever the function is called, and whoever writes; what is said of it in between is no other work."""
    save = "torch.save(self.model.state_dict(), path)"
    assert _saved(save, "dist.barrier()") == [save]
    assert _saved("if rank == 0:", f"    {save}", 'print("saved", path)', "dist.barrier()") == [save]
    assert _saved("state = self.model.state_dict()", "self.store.write(state)", "wait_for_everyone()") == [
        "self.store.write(state)"
    ]


def test_a_barrier_is_before_what_is_saved_next() -> None:
    """By whomever; what else is done first is none of its business."""
    save = "torch.save(self.model.state_dict(), path)"
    assert _saved("dist.barrier()", "if rank == 0:", "    path.mkdir()", f"    {save}", at=2) == [save]
    assert _saved("dist.barrier()", "self.evaluate()", save, at=2) == []
    assert _saved("dist.barrier()", "state = self.model.state_dict()", "torch.save(state, path)", at=2) == [
        "torch.save(state, path)"
    ]
    assert _saved("dist.barrier()", "state = self.model.state_dict()", "self.evaluate()", save, at=2) == []


def test_where_all_meet_in_a_function_that_only_saves() -> None:
    """What they bring is for the file; one that trains or evaluates as well may meet for that."""
    save = ("if rank == 0:", "    torch.save({'model': model.state_dict(), 'draws': draws}, path)")
    call = save[1].strip()
    gathers = ("dist.barrier()", "dist.all_gather_object(draws, state)")
    assert _saved(*gathers, *save, at=2) == _saved(*gathers, *save, at=3) == [call]
    assert _saved("seen = dist.all_reduce(count)", *gathers, *save, at=4) == []
    assert _saved(*gathers, "for batch in held_out:", "    score(batch)", *save, at=2) == []
    assert _saved(*gathers, *save, at=5) == []


def test_what_is_kept_of_a_model_is_saved() -> None:
    """In memory, by a function that does nothing else; what is only looked at or handed on is not."""
    gathers = "dist.all_gather_object(book, page)"
    takes = "weights = {k: v.cpu() for k, v in self.model.state_dict().items()}"
    taken = ["self.model.state_dict()"]
    assert _saved(gathers, takes, "self.shelf.append((book, weights))", at=2) == taken
    assert _saved(gathers, takes, "self.best[n] = weights", at=2) == taken
    assert _saved(gathers, takes, "self.show(weights)", at=2) == []
    assert _saved(gathers, takes, "self.shelf.append(book)", at=2) == []
    assert _saved(gathers, takes, "self.shelf.append(weights)", "self.train(n)", at=2) == []


def test_a_file_of_tensors_for_a_step_is_saved() -> None:
    """Whatever writes it, under whatever name; what reads it, and a file for each rank alone, is no saving."""
    put = 'self.bucket.put(folder, f"bank-{step:05d}.pkl", part)'
    assert _saved("try:", f"    {put}", "except OSError:", "    return False", "dist.barrier()") == [put]
    assert _saved('part = self.bucket.get(f"bank-{step}.pkl")', "dist.barrier()") == []
    assert _saved('self.bucket.put(f"scores-{rank}.pkl", part)', "dist.barrier()") == []


def test_a_barrier_behind_other_work_is_behind_no_saving() -> None:
    """What is saved is no model, something else came after it, or the line is no barrier."""
    save = "torch.save(self.model.state_dict(), path)"
    assert _saved("torch.save(spectrum, path)", "dist.barrier()") == []
    assert _saved(save, "self.evaluate()", "dist.barrier()") == []
    assert _saved(save, "dist.all_reduce(loss)") == []
    assert _saved("self.model.load_state_dict(state)", "dist.barrier()") == []


def test_what_a_line_gathers_is_saved_further_down() -> None:
    """By the name that it is put into, or by what that is put into; nothing else in the function is saved for it."""

    def saves(*body: str) -> list[str]:
        source = "\n".join(["def to_tablet(model, path):", *(f"    {line}" for line in body)])
        return [one.text for one in SourceTree(source).facts_at(3) if one.kind == "saves"]

    loop = ("for name, p in model.named_parameters():", "    value = p.full_tensor()")
    save = "torch.save(weights, path)"
    assert saves(*loop, "    weights[name] = value.half()", save) == [save]
    assert saves(*loop, "    weights.append(value)", save) == [save]
    assert saves(*loop, "    norms[name] = value.norm()", "print(norms)") == []
    assert saves(*loop, "    norms[name] = value.norm()", save) == []


def test_past_a_suppress_around_what_returns_something_was_caught() -> None:
    """As past a ``try`` that returns, whose ``except`` does not."""

    def caught(manager: str) -> list[str]:
        source = f"def claim(path):\n    while True:\n        with {manager}:\n            return open(path)\n        sleep(1)\n"
        return [block.text for block in SourceTree(source).blocks_at(5) if block.kind == "except"]

    assert caught("suppress(FileExistsError)") == ["with suppress(FileExistsError):"]
    assert caught("lock") == []


def test_an_except_that_leaves_is_a_guard() -> None:
    """Past it, nothing was caught; one that goes on with what follows, or raises again, leaves nothing out."""

    def guards(leaves: str) -> list[str]:
        source = (
            f"for row in rows:\n    try:\n        read(row)\n    except ValueError:\n        {leaves}\n    step(row)\n"
        )
        return [block.text for block in SourceTree(source).blocks_at(6) if block.kind == "guard"]

    assert guards("continue") == ["except ValueError: continue"]
    assert guards("break") == ["except ValueError: break"]
    assert guards("row = None") == guards("raise") == []


def test_a_guard_may_leave_from_within_a_with() -> None:
    """As one does that reads a file if there is one; what swallows an exception may let the program go on behind it."""

    def guards(manager: str) -> list[str]:
        source = f"def read():\n    if known:\n        with {manager}:\n            return load(f)\n    step()\n"
        return [block.text for block in SourceTree(source).blocks_at(5)]

    assert guards("open(path) as f") == ["if known: return"]
    assert guards("contextlib.suppress(OSError)") == []


def test_a_function_forgets_what_is_around_it() -> None:
    """Blocks are those of the line's own function; a header's own line is not yet inside its block."""
    assert _at(25) == []
    assert _at(3) == []


def test_a_comprehension_is_a_loop() -> None:
    """Where what it calls can be called nowhere but in it, and it goes through all there is."""

    def blocks(line: str) -> list[str]:
        return [block.text for block in SourceTree(line).blocks_at(1)]

    assert blocks("losses = [model(row) for row in self.data]") == ["for row in self.data:"]
    assert blocks("total = sum(model(x) for _, x in enumerate(data))") == ["for _, x in enumerate(data):"]
    assert blocks("found = {k: read(k) for k in names}") == ["for k in names:"]
    assert blocks("found = [row for row in read()]") == []
    assert blocks("found = [model(row) for row in read()]") == []
    assert blocks("found = any(model(row) for row in data)") == []
    assert blocks("means = torch.stack([model(row) for row in data]).mean()") == ["for row in data:"]
    assert blocks("loss = engine(**{name: value.half() for name, value in batch.items()})") == []


@given(st.text(max_size=200), st.integers(-2, 30))
def test_any_text_has_an_answer(source: str, line: int) -> None:
    """Files that are no Python, or of a newer one, have no blocks and do no harm."""
    SourceTree(source).blocks_at(line)


def test_a_function_has_the_name_that_python_gives_it() -> None:
    """The flight recorder has ``flush`` for that of every class."""
    source = """
class Lane:
    mark = 1
    def flush(self):
        def sends():
            return 1
        return sends()

def main():
    pass
"""
    names = [SourceTree(source).function_at(line) for line in range(2, 11)]
    inner = "Lane.flush.<locals>.sends"
    assert names == ["", "", "", "Lane.flush", inner, "Lane.flush", "", "", "main"]


def test_what_keeps_a_functions_results_had_none_of_it() -> None:
    """A decorator, or what the function is given to."""
    source = """
class Baselines:
    def __init__(self):
        self.get = lru_cache(maxsize=8)(self._compute)

    def _compute(self, week):
        return gather(week)

    @cache
    def names(self):
        return gather()
"""
    tree = SourceTree(source)
    texts = [block.text for line in (7, 11) for block in tree.blocks_at(line)]
    assert texts == ["lru_cache(maxsize=8)(self._compute): return", "@cache: return"]


def test_a_loop_says_how_it_may_be_left() -> None:
    """By the innermost condition around a ``break`` of its own, in whatever stands around that."""
    tree = SourceTree(
        "def main():\n"
        "    for batch in loader:\n"
        "        loss = step(batch)\n"
        "        for part in parts:\n"
        "            if part:\n"
        "                break\n"
        "        with timer():\n"
        "            if loss < best:\n"
        "                if control.stop:\n"
        "                    break\n"
        "            elif loss != loss:\n"
        "                break\n"
    )
    (loop,) = tree.blocks_at(3)
    assert loop.exits == ("if control.stop: break", "elif loss != loss: break")
    assert tree.blocks_at(5)[-1].exits == ("if part: break",)
