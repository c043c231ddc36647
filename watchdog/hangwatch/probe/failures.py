"""Exceptions this rank has met: the one that ended its program, those that ended threads, those that its threads handle now.

Standard library only. What is kept of an exception is text: it, its frames and all that they hold live no longer for us.
No code of an exception's own class is run.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

_TEXT_LIMIT = 400
#: Exceptions by which a program says that it is done, and not that something went wrong.
_ENDINGS = (SystemExit, GeneratorExit, StopIteration, StopAsyncIteration)


#: Threads that failed, the last ones: a program may start any number that it does not wait for.
_THREADS_KEPT = 3
#: Of so many threads it is looked at what they handle.
_HANDLING_LIMIT = 200


class _State:
    """Of this process: the exceptions that ended threads, and whether they are noted."""

    threads: list[str] = []  # noqa: RUF012 -- never changed in place
    watching = False


def read_uncaught() -> list[str]:
    """Where, and what, ended the program while something keeps its process alive; empty where nothing did.

    The interpreter leaves it in ``sys.last_value`` when it prints it.
    """
    value = getattr(sys, "last_value", None)
    return _describe(type(value), value, getattr(sys, "last_traceback", None)) if value is not None else []


def keeps_exceptions() -> bool:
    """Whether an exception that ends this program is in ``read_uncaught``: multiprocessing keeps those of its children."""
    process = sys.modules.get("multiprocessing.process")
    return process is None or getattr(process, "_parent_process", None) is None


def read_threads() -> list[str]:
    """The last threads that ended by an exception, a line each: which, what, and where it was raised."""
    return _State.threads


def read_handled() -> list[str]:
    """Where, and what, the main thread is handling now: it is in an ``except``, or in what has to run before it is out."""
    return read_all_handled()[0]


def read_all_handled() -> tuple[list[str], list[str]]:
    """That of the main thread, and that of the others, a line each as of those that ended; not of the thread that asks.

    Python 3.10 and later; a triple each up to 3.11, the exception alone from then on.
    """
    read = getattr(sys, "_current_exceptions", None)
    found = read() if read is not None else {}
    main = _say_handled(found.pop(threading.main_thread().ident, None))
    found.pop(threading.get_ident(), None)
    names = getattr(threading, "_active", None)  # `enumerate` takes a lock
    others = []
    for ident, held in list(found.items())[:_HANDLING_LIMIT]:
        lines = _say_handled(held)
        if lines:
            thread = names.get(ident) if type(names) is dict else None
            others.append(_say_of_thread(thread, lines))
    return main, others[:_THREADS_KEPT]


def _say_handled(found: Any) -> list[str]:
    value = found[1] if isinstance(found, tuple) else found
    while type(value) is SystemExit and type(value.code) in (int, str) and value.code:
        value = value.__context__  # leaving with an error, in the handler of the error
    if value is None or issubclass(type(value), _ENDINGS):
        return []
    found = _describe(type(value), value, _traceback_of(value))
    # Python's own machinery, an import above all, goes by exceptions where nothing is wrong.
    return [] if "(<frozen " in found[0] else found


def watch_threads() -> None:
    """Note from now on what ends a thread: once it has died there is nothing left of it or of the exception.

    The hook before ours does what it has always done; one that is set later does so in our place.
    """
    if _State.watching:
        return
    _State.watching = True
    previous = threading.excepthook

    def excepthook(args: Any) -> None:
        _note_thread(args)
        previous(args)

    threading.excepthook = excepthook


def forget_threads() -> None:
    """Forget what happened in the parent, in a forked child."""
    _State.threads = []


def _note_thread(args: Any) -> None:
    try:
        if issubclass(args.exc_type, SystemExit):  # a thread's own way to end
            return
        line = _say_of_thread(args.thread, _describe(args.exc_type, args.exc_value, _traceback_of(args.exc_value)))
        _State.threads = [*_State.threads, line][-_THREADS_KEPT:]
    except Exception:
        pass


def say_failure(who: str, kind: Any, value: Any) -> str:
    """One line: who, what, and where it was raised."""
    return _say(who, _describe(kind, value, _traceback_of(value)))


def _say_of_thread(thread: Any, lines: list[str]) -> str:
    name = vars(thread).get("_name") if thread is not None else None
    return _say("thread %s" % (name or "without a name"), lines)


def _say(who: str, lines: list[str]) -> str:
    *where, what = lines
    return clean("%s: %s%s" % (who, what, ", in %s" % where[0] if where else ""))


def _traceback_of(value: Any) -> Any:
    return BaseException.__dict__["__traceback__"].__get__(value) if value is not None else None


def _describe(kind: Any, value: Any, traceback: Any) -> list[str]:
    """Where it was raised, if that is known, and its type, with its words where they are a plain value of Python's own."""
    name = str(type.__dict__["__name__"].__get__(kind))
    plain = (
        type.__dict__["__module__"].__get__(kind) == "builtins"
        and value is not None
        and all(type(a) in (str, int, float) for a in value.args)
    )
    lines = [clean("%s: %s" % (name, value) if plain else name)]
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None:
        code = traceback.tb_frame.f_code
        lines.insert(0, clean("%s (%s:%d)" % (code.co_name, code.co_filename, traceback.tb_lineno)))
    return lines


def clean(text: str) -> str:
    """Short, and nothing in it that is no character: a beat that cannot be decoded would say nothing at all."""
    return text[:_TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")
