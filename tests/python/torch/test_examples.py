"""The examples for PyTorch, with tiny sizes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "tools" / "python" / "examples"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


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
    sizes = ["--size", "tiny", "--steps", "30", "--every", "10", "--bytes", "50000"]
    program = [str(EXAMPLES / "ddp_transformer.py"), *sizes, "--compress", compress]
    out = run([*TORCHRUN, "--nproc_per_node", "2", *program, "--lr", "0.003"])
    losses = [float(loss) for loss in re.findall(r"validation loss ([\d.]+)", out)]
    assert len(losses) == 3 and losses[-1] < losses[0] - 0.1, out


@pytest.mark.parametrize("spec", ["none", "topk:density=0.05,bypass=never"])
def test_diloco(spec: str) -> None:
    """The loss falls, and the compressed exchange sends less."""
    sizes = ["--size", "tiny", "--steps", "60", "--every", "10", "--bytes", "50000"]
    program = [str(EXAMPLES / "diloco_transformer.py"), *sizes, "--spec", spec]
    more = ["--lr", "0.003", "--momentum", "0.5"]
    out = run([*TORCHRUN, "--nproc_per_node", "2", *program, *more])
    steps = re.findall(r"validation loss ([\d.]+), (\d+) KiB sent", out)
    assert len(steps) == 6 and float(steps[-1][0]) < float(steps[0][0]) - 0.1, out
    assert all((int(sent) < 30) == (spec != "none") for _, sent in steps), out


@pytest.mark.parametrize("compress", ["none", "topk:density=0.05,bypass=never"])
def test_pictures(compress: str, tmp_path: Path) -> None:
    sizes = ["--size", "tiny", "--steps", "12", "--every", "5", "--bytes", "50000"]
    record = ["--compress", compress, "--record", str(tmp_path / "run.jsonl")]
    program = [str(EXAMPLES / "ddp_transformer.py"), *sizes, *record]
    out = run([*TORCHRUN, "--nproc_per_node", "2", *program])
    assert f"pictures: {tmp_path / 'run.html'}" in out, out
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "validation" in page and "--size tiny" in page
    assert ("blocks.0.to_heads.weight" in page) == (compress != "none")


def test_shrink() -> None:
    out = run([sys.executable, str(EXAMPLES / "ddp_shrink.py"), "--ranks", "3", "--steps", "40"])
    assert re.search(r"rank 0: .*rank 2", out), out
    assert "2 ranks end with loss" in out


def test_restart(tmp_path: Path) -> None:
    """A killed rank is named within a second, and the training ends as if nothing had happened."""

    def last_loss(folder: str, *more: str) -> tuple[str, str]:
        program = [str(EXAMPLES / "ddp_restart.py"), "--folder", str(tmp_path / folder), *more]
        restarts = ["--max-restarts", "1", "--monitor-interval", "5"]
        out = run([*TORCHRUN, "--nproc_per_node", "3", *restarts, *program])
        found = re.search(r"40 steps end with loss ([\d.]+)", out)
        assert found, out
        return found[1], out

    expected, _ = last_loss("undisturbed")
    loss, out = last_loss("killed", "--die-at", "12")
    for rank in (0, 1):
        late = re.search(rf"rank {rank}, ([\d.]+) s later: .*rank 2: its process has ended", out)
        assert late and float(late[1]) < 1, out
    goes_on = re.search(r"goes on at step 10, rank 0 with (\d+) residuals", out)
    assert goes_on and int(goes_on[1]) > 0, out
    assert loss == expected
