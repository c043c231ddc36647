"""``python -m comparing [PATTERN ...]``: run each tool on the kept dumps of each hang, and say who was right."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from comparing import hangwatch_diagnose, nvrx, torchfrtrace
from comparing.judging import Judged
from comparing.running import compare
from comparing.tables import Row, render, with_tables
from scenarios.catalogue import load_catalogue
from scenarios.dumping import load_kept

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "nccl_tools.json"
PAGE = RESULTS.with_suffix(".md")


def main() -> int:
    """Returns 0, or 2 where nothing matches."""
    parser = argparse.ArgumentParser(prog="python -m comparing", description=__doc__)
    parser.add_argument(
        "patterns", nargs="*", metavar="PATTERN", help="hangs by name; all whose dumps were kept unless given"
    )
    parser.add_argument(
        "--nvrx", type=Path, required=True, metavar="FOLDER", help="a checkout of nvidia-resiliency-ext"
    )
    parser.add_argument("--write", action="store_true", help="write benchmarks/nccl_tools.md and .json")
    options = parser.parse_args()
    kept = load_kept()
    entries = [entry for entry in load_catalogue(options.patterns) if entry.scenario.name in kept]
    if not entries:
        print("compare: no hang of that name has dumps", file=sys.stderr)
        return 2
    tools = [torchfrtrace.TOOL, nvrx.tool(options.nvrx), hangwatch_diagnose.TOOL]
    found: dict[str, tuple[Judged, ...]] = {}
    for entry, judged in compare([entry for entry in entries if kept[entry.scenario.name].dumps], tools):
        found[entry.scenario.name] = tuple(judged)
        print(f"{entry.scenario.name}: " + "; ".join(f"{one.tool} {one.named}" for one in judged), flush=True)
    rows = []
    for entry in entries:
        truth, one = entry.scenario.truth, kept[entry.scenario.name]
        assert truth is not None
        rows.append(
            Row(
                one.name,
                truth.culprits,
                truth.cause,
                entry.scenario.ranks,
                one.dumps,
                one.asked,
                found.get(one.name, ()),
            )
        )
    if options.write:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
        PAGE.write_text(with_tables(PAGE.read_text(), rows))
    print(render(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
