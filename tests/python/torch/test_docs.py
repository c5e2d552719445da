"""The code blocks of docs/ that use PyTorch, each as a program of two ranks."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[3] / "docs").glob("*.md"))
BLOCKS = [
    pytest.param(block, id=f"{page.name}:{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text()))
    if "import torch" in block
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("block", BLOCKS)
def test_block(block: str, tmp_path: Path) -> None:
    program = tmp_path / "block.py"
    program.write_text(block)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program)],
            cwd=tmp_path,
            env=dict(
                os.environ,
                RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                OMP_NUM_THREADS="1",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for port in [free_port()]
        for rank in range(2)
    ]
    for rank in ranks:
        out, err = rank.communicate(timeout=600)
        assert rank.returncode == 0, err
        if "print(x.tolist())" in block:
            assert out == "[1.0, 1.0, 1.0]\n"


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4
