#!/usr/bin/env python3
"""Names the wheel that was built by the oldest glibc on which it runs, as pip wants it:
name_wheel.py FOLDER_OF_THE_WHEEL FOLDER. Fails if the wheel needs a library that it does not hold
and that not every Linux has."""

import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile


def without_torch(wheel: pathlib.Path, folder: str) -> pathlib.Path:
    """The backend for PyTorch needs PyTorch's libraries, which are loaded before it."""
    left_out = b"pith/torch/_backend"
    copy = pathlib.Path(folder) / wheel.name
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(copy, "w") as rest:
        for item in whole.infolist():
            content = whole.read(item)
            if item.filename.endswith("/RECORD"):
                lines = content.splitlines(keepends=True)
                content = b"".join(line for line in lines if not line.startswith(left_out))
            if not item.filename.encode().startswith(left_out):
                rest.writestr(item, content)
    return copy


def platform_of(wheel: pathlib.Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        shown = subprocess.run(
            [sys.executable, "-m", "auditwheel", "show", str(without_torch(wheel, folder))],
            text=True, capture_output=True, check=True).stdout
    shown = re.sub(r"\s+", " ", shown)
    found = re.search(r'consistent with the following platform tag: "(manylinux\w+)"', shown)
    if not found:
        raise SystemExit(f"{wheel.name} is not self-contained: {shown}")
    return found[1]


def main() -> None:
    source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    wheel = max(source.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    folder.mkdir(parents=True, exist_ok=True)
    named = folder / re.sub(r"-linux_(\w+)\.whl$", f"-{platform_of(wheel)}.whl", wheel.name)
    tags = subprocess.run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag",
                           platform_of(wheel), str(wheel)], text=True, capture_output=True,
                          check=True).stdout.split()
    (source / tags[-1]).replace(named)
    print(named)


if __name__ == "__main__":
    main()
