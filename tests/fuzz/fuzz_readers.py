"""Coverage-guided fuzzing of what reads foreign bytes: ``python tests/fuzz/fuzz_readers.py READER [libFuzzer's options]``.

Needs atheris (``pip install --group fuzz``). Each reader returns a value or raises its typed error, whatever the bytes; anything
else is a finding: it ends the run, and its input is left in the current directory. Put that into ``fixtures/fuzz`` under the
reader's name, where ``test_fuzz_findings.py`` replays it for ever. Seeds are small valid inputs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "watchdog")]

with atheris.instrument_imports(include=["hangwatch"]):
    from readers import READERS, SEEDS


def main() -> None:
    """Fuzz one reader until a finding, or as long as told (``-max_total_time=300``)."""
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        sys.exit(f"which reader? one of {', '.join(READERS)}")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]()):
            Path(corpus, f"seed-{number}").write_bytes(seed)
        atheris.Setup([*sys.argv, "-rss_limit_mb=4096", "-max_len=65536", corpus], READERS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
