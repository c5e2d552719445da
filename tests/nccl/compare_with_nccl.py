#!/usr/bin/env python3
"""The same calls to our libnccl.so.2 and to NVIDIA's: results of argument errors, group rules, NULL
arguments and pure functions must be the same. All of them can be answered without a driver; where
NVIDIA's says 1 for want of one, only ours is looked at. What its libraries have answered lies in
answers-*.json beside this file; a library itself is asked where one is given.

Usage: compare_with_nccl.py OURS [THEIRS...]      answers, or libraries that may not be there
       compare_with_nccl.py --record THEIRS       prints its answers
"""
import ctypes as c
import json
import os
import subprocess
import sys

NO_DRIVER = 1
# Answers that NVIDIA changed: [first, last) versions whose answers are not ours, and why.
OTHER_VERSIONS = (
    ("gin barrier", 22900, 99999),          # as in 2.28.9, which has it in its header
    ("ncclCommWindowDereg", 22900, 99999),  # 0 until 2.29, 4 since
    ("outbox", 22900, 23000),               # in no header: as in the latest
)
FLOAT, SUM = 7, 0


class Id(c.Structure):
    _fields_ = [("internal", c.c_char * 128)]


class Team(c.Structure):
    _fields_ = [("ranks", c.c_int), ("rank", c.c_int), ("stride", c.c_int)]


class Info(c.Structure):
    _fields_ = [("size", c.c_size_t), ("magic", c.c_uint), ("version", c.c_uint),
                ("time", c.c_float)]


class Need(c.Structure):
    _fields_ = [("next", c.c_void_p), ("bytes", c.c_size_t), ("alignment", c.c_size_t),
                ("buffer", c.c_void_p), ("signals", c.c_int), ("counters", c.c_int),
                ("signal", c.c_void_p), ("counter", c.c_void_p)]


def needs(library, name, *arguments):
    """What a requirement function writes, addresses as offsets in its handle."""
    handle = (c.c_ubyte * 64)(*[0x55] * 64)
    need = Need()
    c.memset(c.byref(need), 0x77, c.sizeof(need))
    code = getattr(library, name)(*arguments, c.byref(handle), c.byref(need))
    start = c.addressof(handle)

    def offset(address):
        return None if address is None else address - start
    return [code, need.next, need.bytes, need.alignment, offset(need.buffer), need.signals,
            need.counters, offset(need.signal), offset(need.counter), bytes(handle).hex()]


def answers(path):
    """All answers of one library, by the call's name. Runs in a process of its own."""
    library = c.CDLL(path)
    library.ncclGetErrorString.restype = c.c_char_p
    library.ncclGetLastError.restype = c.c_char_p
    found = {}

    def ask(name, *arguments, as_name=None):
        function = getattr(library, name, None)
        if function is not None:
            found[as_name or name] = function(*arguments)

    found["first error"] = library.ncclGetLastError(None).decode()
    found["texts"] = [library.ncclGetErrorString(code).decode() for code in range(-1, 8)]
    number, pointer = c.c_int(7), c.c_void_p(7)
    buffer = c.create_string_buffer(64)

    def group(*calls):
        ask_all = [library.ncclGroupStart()]
        ask_all += [getattr(library, name)(*arguments) for name, *arguments in calls]
        return ask_all + [library.ncclGroupEnd(), library.ncclGroupEnd()]
    found["end without start"] = library.ncclGroupEnd()
    found["empty group"] = group()
    found["nested groups"] = group(["ncclGroupStart"], ["ncclGroupEnd"], ["ncclGroupEnd"])
    found["error in a group"] = group(["ncclAllReduce", buffer, buffer, 1, FLOAT, SUM, None, None])
    found["group after an error"] = group()
    for name, info in (("good", Info(c.sizeof(Info), 0x74685283, 22809, -1)),
                       ("bad", Info(c.sizeof(Info), 1, 22809, -1)), ("none", None)):
        argument = None if info is None else c.byref(info)
        found[f"simulated group, {name} info"] = group(["ncclGroupSimulateEnd", argument])
        found[f"simulated time, {name} info"] = None if info is None else info.time
    found["simulated without start"] = library.ncclGroupSimulateEnd(None)

    ask("ncclGetVersion", None)
    ask("ncclGetUniqueId", None)
    for name in ("ncclCommCount", "ncclCommUserRank", "ncclCommCuDevice", "ncclCommGetAsyncError"):
        ask(name, None, c.byref(number))
    for name in ("ncclCommDestroy", "ncclCommAbort", "ncclCommFinalize"):
        ask(name, None)
    ask("ncclCommRevoke", None, 0)
    ask("ncclCommSplit", None, 0, 0, c.byref(pointer), None)
    ask("ncclCommRegister", None, None, 0, c.byref(pointer))
    ask("ncclCommDeregister", None, None)
    ask("ncclCommWindowRegister", None, None, 0, c.byref(pointer), 0)
    ask("ncclDevCommCreate", None, None, None)
    ask("ncclRedOpCreatePreMulSum", c.byref(number), buffer, FLOAT, 1, None)
    ask("ncclRedOpCreatePreMulSum", None, buffer, FLOAT, 1, None, as_name="no operation")
    ask("ncclCommRegister", None, buffer, 8, None, as_name="no handle")
    ask("ncclCommGetAsyncError", None, None, as_name="no state")
    for op in (0, 4, 5, 6):
        ask("ncclRedOpDestroy", op, None, as_name=f"ncclRedOpDestroy {op}")
    for type_, count in ((FLOAT, 1), (99, 1), (FLOAT, 0)):
        ask("ncclAllReduce", buffer, buffer, count, type_, SUM, None, None,
            as_name=f"ncclAllReduce {count} of {type_}")
    ask("ncclReduce", buffer, buffer, 1, FLOAT, SUM, 0, None, None)
    ask("ncclReduceScatter", buffer, buffer, 1, FLOAT, SUM, None, None)
    ask("ncclBcast", buffer, 1, FLOAT, 0, None, None)
    for name in ("ncclBroadcast", "ncclGather", "ncclScatter"):
        ask(name, buffer, buffer, 1, FLOAT, 0, None, None)
    for name in ("ncclAllGather", "ncclAlltoAll"):
        ask(name, buffer, buffer, 1, FLOAT, None, None)
    for name in ("ncclSend", "ncclRecv"):
        ask(name, buffer, 1, FLOAT, 0, None, None)
    ask("ncclCommInitRank", None, 1, Id(), 0)
    ask("ncclCommInitAll", None, 1, None)
    found["group after refused communicators"] = group()

    for count in (0, 1, 3, 1000):
        for size in (0, 1, 8, 9, 24, 128):
            found[f"slots {count} {size}"] = library.ncclLLA2ACalcSlots(count, size)
    for blocks in (0, 1, 3):
        for slots in (0, 1, 7, 100):
            found[f"a2a {blocks} {slots}"] = needs(library, "ncclLLA2ACreateRequirement", blocks,
                                                   slots)
        for ranks in (1, 2, 8):
            team = Team(ranks, 0, 1)
            found[f"barrier {blocks} {ranks}"] = needs(
                library, "ncclLsaBarrierCreateRequirement", team, blocks)
            found[f"gin barrier {blocks} {ranks}"] = needs(
                library, "ncclGinBarrierCreateRequirement", None, team, blocks)
        for log2 in (0, 7, 12):
            if hasattr(library, "ncclGinOutboxCreateRequirement"):
                found[f"outbox {blocks} {log2}"] = needs(
                    library, "ncclGinOutboxCreateRequirement", blocks, log2)
                found[f"inbox {blocks} {log2}"] = needs(
                    library, "ncclGinInboxA2ACreateRequirement", Team(3 + blocks, 0, 1), blocks,
                    log2)
    ask("ncclCommWindowDeregister", None, None)
    grown = c.byref(Id())
    for what, arguments in (("by nobody", [2, None, -1, c.byref(pointer), None]),
                            ("to nowhere", [2, grown, 1, None, None]),
                            ("beyond its size", [2, grown, 2, c.byref(pointer), None])):
        ask("ncclCommGrow", None, *arguments, as_name=f"grown {what}")
    if hasattr(library, "ncclCommGrow"):  # 2.28 crashes
        ask("ncclDevCommDestroy", None, None)
    found["version"] = None
    library.ncclGetVersion(c.byref(number))
    version = number.value
    for name, arguments in (("ncclCommSuspend", [None, 1]), ("ncclCommResume", [None]),
                            ("ncclCommMemStats", [None, 0, buffer]),
                            ("ncclCommGetUniqueId", [None, c.byref(Id())]),
                            ("ncclCommQueryProperties", [None, buffer]),
                            ("ncclPutSignal", [buffer, 1, FLOAT, 0, None, 0, 0, 0, 0, None, None]),
                            ("ncclSignal", [0, 0, 0, 0, None, None]),
                            ("ncclWaitSignal", [0, None, None, None]),
                            ("ncclWinGetUserPtr", [None, None, c.byref(pointer)]),
                            ("ncclGetPeerDevicePointer", [None, 0, 0, c.byref(pointer)]),
                            ("ncclGetLsaDevicePointer", [None, 0, 0, c.byref(pointer)]),
                            ("ncclGetLsaMultimemDevicePointer", [None, 0, c.byref(pointer)]),
                            ("ncclGetMultimemDevicePointer", [None, 0, None, c.byref(pointer)]),
                            ("ncclParamBind", [c.byref(pointer), b"NOTHING"]),
                            ("ncclParamGet", [None, buffer, 8, c.byref(number)]),
                            ("ncclParamGetParameter", [b"NOTHING", c.byref(pointer),
                                                       c.byref(number)]),
                            ("ncclParamGetAllParameterKeys", [None, None]),
                            ("ncclParamGetI32", [None, c.byref(number)]),
                            ("ncclParamGetStr", [None, c.byref(pointer)])):
        ask(name, *arguments)
    return version, found


def asked(path):
    """From a process of its own: two libraries of one name do not share one."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("NCCL_", "PITH_"))}
    run = subprocess.run([sys.executable, __file__, "--answers", path], env=environment,
                         stdout=subprocess.PIPE, check=True, timeout=120, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def answers_of(path):
    """Of a library, or as they were recorded."""
    if not path.endswith(".json"):
        return asked(path)
    with open(path, encoding="utf-8") as file:
        recorded = json.load(file)
    return recorded["version"], recorded["answers"]


def differences(ours, theirs, their_version):
    for name, answer in theirs.items():
        changed = any(name.startswith(start) and first <= their_version < last
                      for start, first, last in OTHER_VERSIONS)
        if answer == NO_DRIVER or changed:
            continue
        if ours.get(name) != answer:
            yield f"{name}: NVIDIA's {their_version} answers {answer}, ours {ours.get(name)}"


def main():
    if sys.argv[1] == "--answers":
        print(json.dumps(answers(sys.argv[2])))
        return 0
    if sys.argv[1] == "--record":
        version, theirs = asked(sys.argv[2])
        lines = [f"  {json.dumps(name)}: {json.dumps(answer)}" for name, answer in theirs.items()]
        print(f'{{"version": {version}, "answers": {{\n' + ",\n".join(lines) + "\n}}")
        return 0
    _, ours = asked(sys.argv[1])
    bad = 0
    for path in sys.argv[2:]:
        if not os.path.exists(path):
            print(f"{path} is not here: only recorded answers are compared (PITH_NCCL_ROOT, or "
                  "PyPI's nvidia-nccl-cu13)")
            continue
        version, theirs = answers_of(path)
        found = list(differences(ours, theirs, version))
        compared = sum(answer != NO_DRIVER for answer in theirs.values())
        print(f"{path}, {version}: {compared} answers compared, {len(found)} differ")
        print("\n".join(found))
        bad += len(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
