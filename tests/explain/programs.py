"""The programs that the tests of a folder run. Takes the folder of programs off the arguments."""
import os
import pathlib
import subprocess
import sys

BIN = pathlib.Path(sys.argv.pop(1)).resolve()


def clean(variables):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PITH_")}
    return {**kept, **variables}


def run(program, *arguments, **variables):
    return subprocess.run([str(BIN / program), *arguments], capture_output=True, text=True,
                          timeout=120, env=clean(variables), check=False)
