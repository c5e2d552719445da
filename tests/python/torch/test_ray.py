"""Ray Train, in an environment of its own: Ray is large, and the other tests do not need it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "tools" / "python" / "examples" / "ray_train.py"


@pytest.fixture
def python(tmp_path: Path) -> str:
    """One that has Ray, and all that this Python has. PITH_RAY_PYTHON names one that is there."""
    if "PITH_RAY_PYTHON" in os.environ:
        return os.environ["PITH_RAY_PYTHON"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "ray")], check=True)
    python = str(tmp_path / "ray" / "bin" / "python")
    packages = next((tmp_path / "ray" / "lib").glob("python*/site-packages"))
    (packages / "this.pth").write_text(sysconfig.get_path("purelib"))
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*install, "ray[train]"], capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"ray cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return python


def test_two_workers(python: str) -> None:
    done = subprocess.run(
        [python, str(EXAMPLE), "--workers", "2"],
        env=dict(os.environ, OMP_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )
    out = done.stdout
    assert done.returncode == 0, out
    found = re.search(r"2 workers with pith end with loss ([\d.]+)", out)
    assert found and float(found[1]) < 0.01, out
    assert "checkpoint: model.pt rank-0.pt rank-1.pt" in out, out
