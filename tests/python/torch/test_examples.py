"""The examples for PyTorch, with tiny sizes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "tools" / "python" / "examples"


def run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("compress", ["none", "topk:density=0.05", "auto"])
def test_transformer(compress: str) -> None:
    """Under torchrun; the loss falls."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    sizes = ["--size", "tiny", "--steps", "30", "--every", "10", "--bytes", "50000"]
    program = [str(EXAMPLES / "ddp_transformer.py"), *sizes, "--compress", compress]
    out = run([*launcher, "--nproc_per_node", "2", *program, "--lr", "0.003"])
    losses = [float(loss) for loss in re.findall(r"validation loss ([\d.]+)", out)]
    assert len(losses) == 3 and losses[-1] < losses[0] - 0.1, out


@pytest.mark.parametrize("compress", ["none", "topk:density=0.05,bypass=never"])
def test_pictures(compress: str, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    sizes = ["--size", "tiny", "--steps", "12", "--every", "5", "--bytes", "50000"]
    record = ["--compress", compress, "--record", str(tmp_path / "run.jsonl")]
    program = [str(EXAMPLES / "ddp_transformer.py"), *sizes, *record]
    out = run([*launcher, "--nproc_per_node", "2", *program])
    assert f"pictures: {tmp_path / 'run.html'}" in out, out
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "validation" in page and "--size tiny" in page
    assert ("blocks.0.to_heads.weight" in page) == (compress != "none")


def test_shrink() -> None:
    out = run([sys.executable, str(EXAMPLES / "ddp_shrink.py"), "--ranks", "3", "--steps", "40"])
    assert re.search(r"rank 0: .*rank 2", out), out
    assert "2 ranks end with loss" in out
