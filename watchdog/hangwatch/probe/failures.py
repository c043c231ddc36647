"""Exceptions of this rank: the one that ended its program, those that ended threads, those being handled now.

Standard library only. Only text is kept of an exception, so that nothing it refers to lives any longer. No code of an
exception's own class is run.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

_TEXT_LIMIT = 400
#: Exceptions that end a program without a failure.
_ENDINGS = (SystemExit, GeneratorExit, StopIteration, StopAsyncIteration)


#: How many failed threads are kept, the last ones: a program may start any number.
_THREADS_KEPT = 3
#: How many threads are searched for exceptions they handle.
_HANDLING_LIMIT = 200


class _State:
    """State of this process: the exceptions that ended threads, and whether they are noted."""

    threads: list[str] = []  # noqa: RUF012 -- never changed in place
    watching = False


def read_uncaught() -> list[str]:
    """Return the exception that ended the program, and where, if something keeps its process alive; else nothing.

    The interpreter leaves it in ``sys.last_value`` when it prints it.
    """
    value = getattr(sys, "last_value", None)
    return _describe(type(value), value, getattr(sys, "last_traceback", None)) if value is not None else []


def read_uncaught_calls() -> tuple[list[tuple[str, str, int]], list[str]]:
    """Return the calls in which the exception was raised that ended the program, deepest first, and its text.

    The text is as in ``read_uncaught``. If it was raised because of another exception, or while another was handled,
    the first one counts: that is what went wrong.
    """
    value = last = getattr(sys, "last_value", None)
    if value is None:
        return [], []
    outer = getattr(sys, "last_traceback", None)
    seen = {id(value)}
    while (before := _before(value)) is not None and id(before) not in seen:
        seen.add(id(before))
        value = before
    inner = outer if value is last else _traceback_of(value)
    return _calls(inner, outer), _describe(type(value), value, inner)


def _before(value: Any) -> Any:
    """Return the exception that caused this one, or that was being handled when it was raised; None without one."""
    read = BaseException.__dict__
    cause = read["__cause__"].__get__(value)
    if cause is not None or read["__suppress_context__"].__get__(value):
        return cause
    return read["__context__"].__get__(value)


def _calls(inner: Any, outer: Any) -> list[tuple[str, str, int]]:
    """Return the calls of a traceback, deepest first.

    ``outer``: the traceback whose first frame has the calls above.
    """
    calls: list[tuple[str, str, int]] = []
    first = inner.tb_frame if inner is not None else None
    while outer is not None and outer.tb_frame is not first:
        calls.append(_call(outer))
        outer = outer.tb_next
    if outer is None:  # nothing in common: another thread's traceback, or a stored one
        calls = []
    while inner is not None:
        calls.append(_call(inner))
        inner = inner.tb_next
    return calls[::-1]


def _call(traceback: Any) -> tuple[str, str, int]:
    code = traceback.tb_frame.f_code
    return clean(code.co_name), clean(code.co_filename), traceback.tb_lineno or 0


def keeps_exceptions() -> bool:
    """True if an exception that ends this program will be in ``read_uncaught``.

    multiprocessing keeps those of its children to itself.
    """
    process = sys.modules.get("multiprocessing.process")
    return process is None or getattr(process, "_parent_process", None) is None


def read_threads() -> list[str]:
    """Return the last threads that an exception ended, one line each: which, what, and where it was raised."""
    return _State.threads


def read_handled() -> list[str]:
    """Return the exception that the main thread is handling now, and where; else nothing.

    The thread is in an ``except`` block, or in a ``finally`` or ``with`` that ends because of the exception.
    """
    return read_all_handled()[0]


def read_all_handled() -> tuple[list[str], list[str]]:
    """Return what ``read_handled`` does, and one line for each other thread that handles an exception.

    The calling thread is left out. Python 3.10 and later, which has a triple per thread up to 3.11, and only the
    exception from then on.
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
        value = value.__context__  # ``sys.exit`` with an error, called in the handler of the error
    if value is None or issubclass(type(value), _ENDINGS):
        return []
    found = _describe(type(value), value, _traceback_of(value))
    # Python itself, above all its imports, uses exceptions when nothing is wrong.
    return [] if "(<frozen " in found[0] else found


def watch_threads() -> None:
    """Note from now on what ends a thread: nothing else is left of a dead thread and its exception.

    The previous hook still runs as ever; one that is set later replaces ours.
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
    """Forget, in a forked child, what happened in the parent."""
    _State.threads = []


def _note_thread(args: Any) -> None:
    try:
        if issubclass(args.exc_type, SystemExit):  # an ordinary way to end a thread
            return
        line = _say_of_thread(args.thread, _describe(args.exc_type, args.exc_value, _traceback_of(args.exc_value)))
        _State.threads = [*_State.threads, line][-_THREADS_KEPT:]
    except Exception:
        pass


def say_failure(who: str, kind: Any, value: Any) -> str:
    """Return one line: who, what, and where it was raised."""
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
    """Return where it was raised, if known, its type, and its text if that is plain values of Python's own types."""
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
    """Return a short text without invalid characters: one of them would make the whole beat undecodable."""
    return text[:_TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")
