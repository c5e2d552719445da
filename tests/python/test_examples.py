"""The examples, and every block of code in the documentation, as a reader would run them."""

import pathlib
import re
import sys

import pytest

from conftest import Ranks

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "tools" / "python" / "examples"
PAGES = ("tools/python/README.md", "README.md",
         *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))


def blocks():
    """Each block of Python, and the block of text after it, if that is its output."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        output = r"(?:\n\n[^\n]*prints\n\n```text\n(.*?)^```$)?"
        found = re.findall(r"(?ms)^```python\n(.*?)^```$" + output, text)
        for number, (code, output) in enumerate(found):
            yield pytest.param(code, output, id=f"{page}:{number}")


@pytest.mark.parametrize(("code", "output"), list(blocks()))
def test_documentation(code, output, tmp_path):
    if "import torch" in code or "pith.torch" in code:
        pytest.skip("tests/python/torch runs it")
    file = tmp_path / "block.py"
    file.write_text(code, encoding="utf-8")
    told = Ranks([sys.executable, str(file)], 2, tmp_path).succeed()
    if output:
        assert "".join(told) == output


def test_all_pages_have_blocks():
    assert len(list(blocks())) >= 14


def test_digits(tmp_path):
    told = Ranks([sys.executable, str(EXAMPLES / "digits.py")], 3, tmp_path).succeed()
    recognized = re.search(r"([\d.]+)% of 360 digits", told[0])
    assert recognized and float(recognized[1]) > 90, told[0]
    assert "5.0% of the gradient" in told[0] and not told[1]


def test_rejoin(tmp_path):
    """The new process finishes as rank 2: the survivors are ranks 0 and 1 by then."""
    ranks = Ranks([sys.executable, str(EXAMPLES / "rejoin.py"), "1"], 3, tmp_path)
    ends = ranks.end()
    for rank in (0, 2):
        status, out, err = ends[rank]
        assert status == 0, err
        assert "3 ranks have finished, state 210" in out, out
    assert "rank 2: 3 ranks have finished" in ends[0][1], ends[0][1]  # what it started


def test_recovery(tmp_path):
    ranks = Ranks([sys.executable, str(EXAMPLES / "recovery.py"), "1"], 3, tmp_path)
    ends = ranks.end()
    for rank in (0, 2):
        status, out, err = ends[rank]
        assert status == 0, err
        assert "rank 1" in out and "2 ranks have finished, state 210" in out, out
    told = Ranks([sys.executable, str(EXAMPLES / "recovery.py")], 2, tmp_path).succeed()
    assert all("2 ranks have finished, state 210" in out for out in told), told
