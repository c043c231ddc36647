"""Records the session in docs/mcp.md: ``python docs/mcp_session.py``, with torch and the extra ``mcp`` installed.

A real job of the demos hangs under ``hangwatch run``; the MCP SDK's own client starts ``hangwatch mcp`` and calls what SKILL.md
says. The words between the calls are in this file: no language model takes part.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from hangwatch.demos import find_scenario

PAGE = Path(__file__).with_name("mcp.md")
#: The last section of the page.
HEAD = """\
## A recorded session

No language model took part: this shows what a coding agent gets, not what it makes of it.
`docs/mcp_session.py` starts a real job of three ranks (the demo `rank-conditional`) under
`hangwatch run`. The MCP SDK's own client then calls the tools of `hangwatch mcp` over stdio, in the
order of [SKILL.md](../watchdog/hangwatch/assistant/SKILL.md). Calls and answers are real. The
script chooses the calls and contains the words between them. `...` stands for fields that are left
out. The folder of the run is written `/tmp/run`.

> **Question:** My training job has printed nothing since step 4. Which line do I have to fix?
"""
_DOTS = "..."


def shown(answer: Mapping[str, Any], *fields: str) -> dict[str, Any]:
    """Some fields of an answer, with a mark for the others."""
    return {**{name: answer[name] for name in fields}, _DOTS: _DOTS}


async def ask(client: Client, words: str, tool: str, *fields: str, **arguments: Any) -> Any:
    """Call a tool and print words, call and answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content  # noqa: S101
    answer = result.structured_content
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    print(f"\n{words}\n\n```\n{tool}({given})\n```\n\n```json")
    print(json.dumps(shown(answer, *fields), indent=2, ensure_ascii=False).replace(f'"{_DOTS}": "{_DOTS}"', _DOTS))
    print("```")
    return answer


async def session(state: Path) -> None:
    """The calls that SKILL.md says, on the hang in a state directory."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "hangwatch", "mcp", "--state-dir", str(state)])
    async with Client(server) as client:
        found = await ask(
            client, "The latest incident:", "get_incident",
            "kind", "proven", "summary", "culprit_ranks", "waiting_ranks", "sides",
        )  # fmt: skip
        compared = await ask(
            client,
            "Where the culprit and a waiting rank take different paths:",
            "compare_ranks",
            "diverge_at",
            one=0,
            other=1,
        )
        culprit, others = found["sides"]
        fork = int(re.findall(r":([0-9]+)\)", compared["diverge_at"][0])[0])
        source = dict(enumerate(Path(culprit["file"]).read_text().splitlines(), 1))
        around = "\n".join(f"{n}: {source[n]}".rstrip() for n in range(fork - 3, fork + 4) if n in source)
        print(f"\nThe file, which the agent opens itself, around that line:\n\n```python\n{around}\n```")
        print(f"\nThe remedy is on the cause's page, `{found['cause']['page']}`.")
        condition = next(line for line in reversed(list(source.values())[: fork - 1]) if " if " in line).strip()
        call = compared["diverge_at"][0].partition(": ")[2]
        print(f"\n> **Answer:** `{call}` in line {fork} of `train.py` runs only under `{condition}`.")
        print(
            f"> It calls `{culprit['source']}` (line {culprit['line']}), which every rank has to call. The others wait in"
        )
        print(
            f"> `{others['source']}` (line {others['line']}). Neither side can ever go on. Call `{call}` on all ranks."
        )


def main() -> None:
    """Start the job, wait for its incident, and write the session into the page."""
    scenario = find_scenario("rank-conditional")
    assert scenario is not None  # noqa: S101
    folder = Path(tempfile.mkdtemp())
    program, state = folder / "train.py", folder / "state"
    shutil.copy(scenario.path, program)
    command = [str(program) if part == str(scenario.path) else part for part in scenario.command()]
    run = subprocess.Popen(
        [sys.executable, "-m", "hangwatch", "run", "--state-dir", state, "--", *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not list(state.glob("incidents/*/incident.json")):
            assert run.poll() is None, "the job has ended without a hang"  # noqa: S101
            time.sleep(0.2)
        recorded = io.StringIO()
        with contextlib.redirect_stdout(recorded):
            asyncio.run(session(state))
        text = recorded.getvalue().replace(str(folder), "/tmp/run")  # noqa: S108  # a name to show
        before = PAGE.read_text().partition(HEAD.splitlines()[0])[0]
        PAGE.write_text(before + HEAD + text)
    finally:
        run.terminate()
        run.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
