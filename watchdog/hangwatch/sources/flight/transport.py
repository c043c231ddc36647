"""How a rank's flight recorder is asked: the probe's control socket, and torch's own worker server.

May import hangwatch.model, msgspec and the standard library. Control socket (``hangwatch/probe``): a stream on a unix
socket; the line ``flight`` or ``flight BACKEND`` is answered with a pickle until EOF, ``raise TEXT`` with ``begun`` where the
rank was started to allow that, and after any line a beat is written.
Worker server (torch 2.4 on, ``_WorkerServer``): HTTP/1.1 on a unix socket, ``POST /handler/fr_trace_json``; it runs
without the GIL. ``dump_traceback`` there takes the GIL and blocks: it is never asked. NCCL has a recorder of its own with
handlers of its own (``NCCLUtils.cpp``, later ``FlightRecorder.cpp``): ``dump_nccl_trace_pickle`` from 2.4 on,
``dump_nccl_trace_json`` since 2.5 (2.4 answers 404). Both take ``includestacktraces`` and the like; the pickle without call
sites needs no GIL either.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import socket
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import NamedTuple, cast

import msgspec

from hangwatch.model.beats import Beat
from hangwatch.sources.flight.pickles import MAX_PICKLE_BYTES, FlightFormatError, load_pickle

_CHUNK_BYTES = 1 << 20
#: By backend, the handlers to try in turn until one exists.
_HANDLERS = {"nccl": ("dump_nccl_trace_json", "dump_nccl_trace_pickle?includestacktraces=false")}
_ANY_BACKEND = ("fr_trace_json",)
#: The first byte of a pickle (protocol 2 and up), which never begins JSON.
_PICKLE_MARK = b"\x80"
_NO_HANDLER = re.compile(rb"HTTP/1\.\d 404\b")
_AGAIN_S = 0.1
#: The probe reads lines of 2 KiB.
RAISE_LIMIT_BYTES = 1900
_PATH_LIMIT_BYTES = 107  # sun_path holds 108 with its closing NUL


class RawDump(msgspec.Struct, frozen=True):
    """A dump as it arrived.

    ``form``: pickle (the probe's, with call sites) or json (torch's server's, without them; torch 2.4 sends a pickle
    instead). ``at_ns``: the wall clock at its arrival.
    """

    form: str
    data: bytes
    at_ns: int

    def decode(self) -> dict[str, object]:
        """Return the dump as plain data. Raises ``FlightFormatError``."""
        if self.form == "json" and not self.data.startswith(_PICKLE_MARK):
            try:
                return msgspec.json.decode(self.data, type=dict[str, object])
            except msgspec.MsgspecError as error:
                raise FlightFormatError(f"the worker server's answer cannot be read: {error}") from None
        loaded = load_pickle(self.data)
        if not isinstance(loaded, dict):
            raise FlightFormatError("the answer is not a dump")
        return loaded


class _Numbered(msgspec.Struct):
    record_id: int


def decode_newest(data: bytes, last: int) -> tuple[dict[str, object], int]:
    """Return a JSON dump as plain data, without entries up to the record id ``last``; and how many entries it has in all.

    torch writes them in order, and from 0 again once its recorder was reset. An entry costs six times as much to decode as to
    skip. Raises ``FlightFormatError``.
    """
    try:
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        entries = msgspec.json.decode(parts.pop("entries", b"[]"), type=list[msgspec.Raw])
        newest = msgspec.json.decode(entries[-1], type=_Numbered).record_id if entries else last
        count = newest - last if newest >= last else len(entries)
        new = entries[max(0, len(entries) - count) :]
        dump: dict[str, object] = {name: msgspec.json.decode(part) for name, part in parts.items()}
        dump["entries"] = [msgspec.json.decode(entry) for entry in new]
    except msgspec.MsgspecError as error:
        raise FlightFormatError(f"the worker server's answer cannot be read: {error}") from None
    return dump, len(entries)


async def fetch_dump(
    beat: Beat, timeout_s: float, *, backend: str = "", call_sites: bool = True
) -> tuple[tuple[RawDump, ...], tuple[str, ...]]:
    """Return the dumps that arrived in time, the better one first, and why others did not.

    ``backend`` (gloo or nccl): which of a rank's two recorders is asked; without it, the one in use. With
    ``call_sites`` both ways are asked at once, and the wait ends with the pickle; without, the pickle is asked for
    only if there is no worker server.
    """
    ways: list[tuple[str, Coroutine[None, None, bytes]]] = []
    if beat.control is not None and (call_sites or beat.server is None):
        ways.append(("pickle", _ask(beat.control, f"flight {backend}".encode().strip() + b"\n")))
    if beat.server is not None:
        ways.append(("json", _ask_worker_server(beat.server, _HANDLERS.get(backend, _ANY_BACKEND))))
    tasks = [asyncio.create_task(_collect(form, answer)) for form, answer in ways]
    try:
        deadline = time.monotonic() + timeout_s
        for task in tasks:  # the pickle first, where there is one
            await asyncio.wait([task], timeout=max(0.0, deadline - time.monotonic()))
            if task.done() and isinstance(task.result(), RawDump):
                break
        results = [
            task.result() if task.done() else _late(form, timeout_s)
            for task, (form, _) in zip(tasks, ways, strict=True)
        ]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    dumps = tuple(result for result in results if isinstance(result, RawDump))
    return dumps, tuple(result for result in results if isinstance(result, str))


async def ask_for_beats(paths: Iterable[str], timeout_s: float) -> None:
    """Have the probes behind these control sockets write a beat now.

    A probe that does not within ``timeout_s`` writes its next beat as usual. It beats after each request, also after
    one that has no answer.
    """
    asked = [asyncio.create_task(_ask(path, b"beat\n")) for path in paths]
    if not asked:
        return
    _, late = await asyncio.wait(asked, timeout=timeout_s)
    for task in late:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def ask_to_raise(path: str, text: str, timeout_s: float) -> str:
    """Have the probe behind this control socket raise ``text`` in its rank as soon as that runs Python code.

    Returns why it will not; empty if it will.
    """
    return await _order(path, b"raise " + " ".join(text.split()).encode()[:RAISE_LIMIT_BYTES], timeout_s)


async def ask_to_break(path: str, timeout_s: float) -> str:
    """Have a probe that was asked to raise end its rank's waits.

    Returns why it will not; empty if it will.
    """
    return await _order(path, b"break", timeout_s)


async def _order(path: str, line: bytes, timeout_s: float) -> str:
    try:
        answer = await asyncio.wait_for(_ask_until_answered(path, line + b"\n"), timeout_s)
    except asyncio.TimeoutError:
        return "the rank's probe does not answer (its interpreter is blocked, or the process is stopped)"
    except (OSError, FlightFormatError) as error:
        return f"the rank's probe cannot be asked: {error}"
    return "" if answer == b"begun" else "the rank was started without HANGWATCH_RAISE=1"


async def _ask_until_answered(path: str, line: bytes) -> bytes:
    """Return the answer, asking again if there is none.

    On a busy node a probe that is late closes the connection without an answer, or without having read the request.
    """
    while True:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            if answer := await _ask(path, line):
                return answer
        await asyncio.sleep(_AGAIN_S)


async def _collect(form: str, answer: Coroutine[None, None, bytes]) -> RawDump | str:
    """Return the answer, or why there is none."""
    try:
        data = await answer
    except (OSError, FlightFormatError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"{_speaker(form)}: {reason}"
    return RawDump(form, data, time.time_ns()) if data else f"{_speaker(form)} closed the connection without an answer"


def _late(form: str, timeout_s: float) -> str:
    """Return why there is no answer: it did not come in time."""
    reason = "its interpreter may be blocked" if form == "pickle" else "it may be stopped"
    return f"{_speaker(form)} did not answer within {timeout_s:g} s ({reason})"


def _speaker(form: str) -> str:
    """Return who answers in this form."""
    return "the probe" if form == "pickle" else "torch's worker server"


async def _ask(path: str, request: bytes) -> bytes:
    """Send a request to a unix socket and return the whole answer. Raises OSError, ``FlightFormatError`` if it is too long."""
    try:
        with _reachable(path) as short_path:
            reader, writer = await asyncio.open_unix_connection(short_path)
    except ValueError as error:  # a path with a NUL
        raise OSError(None, str(error)) from None
    try:
        writer.write(request)
        await writer.drain()
        chunks: list[bytes] = []
        length = 0
        while chunk := await reader.read(_CHUNK_BYTES):
            chunks.append(chunk)
            length += len(chunk)
            if length > MAX_PICKLE_BYTES:
                raise FlightFormatError(f"the answer has more than {MAX_PICKLE_BYTES} bytes")
        return b"".join(chunks)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.contextmanager
def _reachable(path: str) -> Iterator[str]:
    """Yield a path of the socket that is short enough for an address, if necessary through its open folder. Raises OSError."""
    if len(os.fsencode(path)) <= _PATH_LIMIT_BYTES:
        yield path
        return
    folder, _, name = path.rpartition("/")
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


async def _ask_worker_server(path: str, handlers: Sequence[str]) -> bytes:
    """Return the recorder by the first handler that exists. Raises OSError, ``FlightFormatError`` for any other answer."""
    for handler in handlers:
        request = (
            f"POST /handler/{handler} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        answer = await _ask(path, request.encode())
        if not _NO_HANDLER.match(answer):
            return parse_http_body(answer)
    raise FlightFormatError(
        "no flight recorder is available (torch offers it for NCCL from 2.4 on, for Gloo from 2.10 on)"
    )


def parse_http_body(answer: bytes) -> bytes:
    """Return the body of a whole HTTP/1.1 answer. Raises ``FlightFormatError`` for another status, or if it was cut."""
    response = HTTPResponse(cast("socket.socket", _Answered(answer)))
    try:
        response.begin()
        body = response.read()
    except HTTPException as error:
        raise FlightFormatError(f"the answer is not whole, or not HTTP: {error}") from None
    if response.status != HTTPStatus.OK:
        raise FlightFormatError(f"the answer is HTTP {response.status}")
    return body


class _Answered(NamedTuple):
    """What http.client needs of a socket."""

    answer: bytes

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.answer)
