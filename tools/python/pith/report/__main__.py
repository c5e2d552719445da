"""The command `python -m pith.report RECORD`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pith.report import report


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pith.report", description="Draws a training that a pith.Recorder recorded."
    )
    parser.add_argument("record", type=Path, help="the file of a pith.Recorder")
    parser.add_argument("-o", "--output", type=Path, help="the page; default: RECORD.html")
    args = parser.parse_args()
    output = args.output or args.record.with_suffix(".html")
    try:
        report(args.record, output)
    except (OSError, ValueError) as error:
        print(f"pith.report: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
