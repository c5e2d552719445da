"""Verbs and UCX over soft-RoCE: the cases of guest.py in a virtual machine."""
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77


def main():
    directory = Path(os.environ["PITH_RDMA_VM"])
    directory.mkdir(parents=True, exist_ok=True)
    environment = ["env", f"PITH_BIN={os.environ['PITH_BIN']}"]
    for options, cases in (([], "Device"), ([], "Api"), (["--pair"], "TwoHosts")):
        run = subprocess.run([HERE / "vm.sh", "--seconds", "900", *options, directory, *environment,
                              sys.executable, "-B", HERE / "guest.py", "-v", cases], check=False)
        if run.returncode != 0:
            return run.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
