"""The wheel: it installs into an empty environment, and works there without anything else."""

import ast
import importlib
import os
import pathlib
import re
import subprocess
import sys
import venv
import zipfile

import pytest

from conftest import Ranks

WHEEL = os.environ.get("PITH_WHEEL")
needs_wheel = pytest.mark.skipif(not WHEEL, reason="run.sh builds the wheel")


@needs_wheel
def test_contents():
    assert WHEEL
    names = zipfile.ZipFile(WHEEL).namelist()
    for wanted in ("pith/libpith.so.0", "pith/py.typed", "pith/_core.pyi", "pith/LICENSE",
                   "pith/report/page.css", "pith/report/page.js"):
        assert wanted in names, names
    assert not [name for name in names if name.startswith(("lib/", "include/"))], names
    assert "manylinux" in WHEEL


@needs_wheel
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


def parameters_at_runtime(function):
    """Of the first line of its documentation, which the module writes."""
    signature = function.__doc__.splitlines()[0].rpartition(" ->")[0]
    return [name for name in re.findall(r"[(,] ?(\w+)(?=[:,)])", signature) if name != "self"]


def parameters_in_stub(function):
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return [name for name in names if name != "self"]


def public(names):
    return sorted(name for name in names if not name.startswith("_"))


def test_stubs():
    """The stubs name what the module has, with the same parameters in the same order."""
    core = importlib.import_module("pith._core")
    stub = pathlib.Path(core.__file__).parent / "_core.pyi"
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    told = {node.name: node for node in tree.body if isinstance(node, kinds)}
    assert public(told) == public(vars(core))
    for name, node in told.items():
        real = getattr(core, name)
        if isinstance(node, ast.FunctionDef):
            assert parameters_in_stub(node) == parameters_at_runtime(real), name
            continue
        members = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
        assert public(members) == public(vars(real)), name
        for member, function in members.items():
            is_property = any(isinstance(one, ast.Name) and one.id == "property"
                              for one in function.decorator_list)
            if not is_property and not member.startswith("_"):
                assert (parameters_in_stub(function)
                        == parameters_at_runtime(getattr(real, member))), f"{name}.{member}"
