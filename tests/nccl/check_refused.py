#!/usr/bin/env python3
"""src/nccl/refused.md names just what the library refuses, with the code that it answers.

Usage: check_refused.py LIBRARY SOURCES     (SOURCES: the folder src/nccl)
"""
import ctypes as c
import os
import pathlib
import re
import sys

CODES = {"ncclInvalidArgument": 4, "ncclInvalidUsage": 5}
# What a refusal is made of in the sources.
REFUSALS = re.compile(r"\breturn (unsupported|no_parameter)\(")
FILLED = b"\x5a" * 256


class Id(c.Structure):
    _fields_ = [("internal", c.c_char * 128)]


def exported(sources):
    """Parameters of all functions, by name."""
    text = (sources / "abi.h").read_text().replace("\\\n", " ")
    found = re.findall(r"X\(\s*(?:const )?\w+\*?,\s*(nccl\w+),\s*\(([^)]*)\)\)", text)
    return {name: [" ".join(one.split()) for one in parameters.split(",")]
            for name, parameters in found}


def refused_by_code(sources):
    names = set()
    for path in sources.glob("*.cpp"):
        text = path.read_text()
        parts = re.split(r"NCCL_EXPORT\(\s*[\w ]+\*?,\s*(nccl\w+),", text)
        for name, body in zip(parts[1::2], parts[2::2]):
            # One that refuses at once, whatever it is given.
            body = re.split(r"\}$", body, maxsplit=1, flags=re.M)[0]
            if REFUSALS.search(body) and "if (" not in body:
                names.add(name)
        names.update(re.findall(r"^NCCL_NO_NUMBER\((nccl\w+),", text, re.M))
    return names


def tables(page):
    """Of each table its rows: functions and answer."""
    found = []
    for table in page.read_text().split("|---|---|---|\n")[1:]:
        rows = table.split("\n\n")[0].strip().split("\n")
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
        found.append([(re.findall(r"`(nccl[A-Z]\w*)`", row[0]), row[1]) for row in cells])
    return found


def argument(parameter, comm, room):
    """Anything that a caller may pass."""
    if parameter.startswith("ncclComm_t") and "*" not in parameter:
        return c.c_void_p(comm)
    handles = ("cudaStream_t", "ncclWindow_t", "ncclParamHandle_t")
    if "*" in parameter or parameter.startswith(handles):
        return c.cast(room, c.c_void_p)
    return c.c_size_t(1) if parameter.startswith("size_t") else c.c_int(1)


def communicator(library):
    made, unique = c.c_void_p(), Id()
    assert library.ncclGetUniqueId(c.byref(unique)) == 0
    assert library.ncclCommInitRank(c.byref(made), 1, unique, 0) == 0
    return made.value


def wrong_answers(library, name, parameters, code):
    comm = communicator(library)
    room = c.create_string_buffer(FILLED, len(FILLED))
    answer = getattr(library, name)(*[argument(one, comm, room) for one in parameters])
    if answer != code:
        yield f"{name} answers {answer}, the page says {code}"
    if room.raw != FILLED:
        yield f"{name} has written to what it was given"
    library.ncclGetLastError.restype = c.c_char_p
    if name not in library.ncclGetLastError(None).decode():
        yield f"{name} is not named by the last error"
    if any(one.startswith("ncclComm_t comm") for one in parameters):
        answer = getattr(library, name)(*[argument(one, None, room) for one in parameters])
        if answer != CODES["ncclInvalidArgument"]:
            yield f"{name} of no communicator answers {answer}"
    sent, summed = c.c_float(3), c.c_float(0)
    if library.ncclAllReduce(c.byref(sent), c.byref(summed), c.c_size_t(1), 7, 0,
                             c.c_void_p(comm), None) != 0 or summed.value != 3:
        yield f"{name} has left a communicator that does not go on"
    assert library.ncclCommDestroy(c.c_void_p(comm)) == 0


def main():
    for name in [one for one in os.environ if one.startswith(("NCCL_", "PITH_"))]:
        del os.environ[name]
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sources = pathlib.Path(sys.argv[2])
    functions = exported(sources)
    assert len(functions) == 82, f"{len(functions)} functions in abi.h"
    refused, lesser = tables(sources / "refused.md")
    rows = {name: answer for names, answer in refused for name in names}
    by_code = refused_by_code(sources)
    bad = [f"the page does not name {name}, which is refused" for name in by_code - set(rows)]
    bad += [f"{name} is not refused" for name in set(rows) - by_code]
    named = set(rows).union(*[names for names, _ in lesser])
    bad += [f"{name} is no function" for name in named - set(functions)]
    library = c.CDLL(sys.argv[1])
    for name in sorted(set(rows) & set(functions)):
        code = re.match(r"`(\w+)`", rows[name])
        bad += wrong_answers(library, name, functions[name], CODES[code.group(1)])
    print(f"{len(rows)} functions are refused, {len(bad)} mistakes")
    print("\n".join(sorted(bad)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
