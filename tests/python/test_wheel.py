"""The wheel: it installs into an empty environment, and works there without anything else."""

import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

from conftest import Ranks

WHEEL = os.environ.get("PITH_WHEEL")
pytestmark = pytest.mark.skipif(not WHEEL, reason="run.sh builds the wheel")


def test_contents():
    assert WHEEL
    names = zipfile.ZipFile(WHEEL).namelist()
    for wanted in ("pith/libpith.so.0", "pith/py.typed", "pith/_core.pyi", "pith/LICENSE"):
        assert wanted in names, names
    assert not [name for name in names if name.startswith(("lib/", "include/"))], names
    assert "manylinux" in WHEEL


def test_empty_environment(tmp_path: pathlib.Path):
    assert WHEEL
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", WHEEL], check=True,
                   timeout=100, cwd=tmp_path)
    script = tmp_path / "sum.py"
    script.write_text("""
import array, sys
import pith
assert pith.__file__.startswith(sys.prefix), pith.__file__
with pith.init() as comm:
    print(comm.all_reduce(array.array("d", [1, comm.rank])).tolist())
assert "numpy" not in sys.modules and "torch" not in sys.modules
""", encoding="utf-8")
    assert Ranks([python, str(script)], 2, tmp_path).succeed() == ["[2.0, 1.0]\n"] * 2
    # Without leave to any library but the system's.
    plain = {"PATH": "/usr/bin:/bin"}
    alone = subprocess.run([python, "-I", "-c", "import pith; print(pith.version())"], env=plain,
                           capture_output=True, text=True, timeout=60, check=True)
    assert alone.stdout.startswith("(0,"), alone


def test_types(tmp_path: pathlib.Path):
    """A user's program passes mypy --strict, and its mistakes are found."""
    good = tmp_path / "good.py"
    good.write_text("""
import array
import pith

with pith.init() as comm:
    x = array.array("d", [1.0])
    y: array.array[float] = comm.all_reduce(x, "max")
    work = comm.all_reduce(x, async_op=True)
    z: array.array[float] = work.wait(timeout=1)
    got: array.array[float] | None = comm.gather(x, root=0)
    density: float = pith.Compressor("topk").stats.density
    try:
        comm.barrier()
    except pith.RemoteError as error:
        ranks: tuple[int, ...] = error.failed
    smaller: pith.Communicator = comm.shrink()
""", encoding="utf-8")
    bad = tmp_path / "bad.py"
    bad.write_text("""
import pith
comm = pith.init()
comm.all_reduce(b"", "add")
comm.split()
pith.Compressor(3)
""", encoding="utf-8")
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*check, str(good)], capture_output=True, text=True, check=False,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([*check, str(bad)], capture_output=True, text=True, check=False,
                          cwd=tmp_path)
    assert done.stdout.count("error:") == 3, done.stdout


def test_stubs():
    """The stubs say what the module has."""
    done = subprocess.run([sys.executable, "-m", "mypy.stubtest", "pith._core",
                           "--ignore-disjoint-bases"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
