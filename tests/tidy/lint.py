#!/usr/bin/env python3
"""clang-tidy on what changed: lint.py BUILD_TREE [--base COMMIT] [--most N] [--or-skip] [--jobs N]

Changed is what differs from the base, committed or not. The base is where this branch has left
main; on main itself it is origin's main, or where they are equal the commit before the last. Nobody
knows what changed in a clone of one commit, or without git: then it is all sources, or with
--or-skip none (status 77).

A header is looked at through a source that includes it: one that is looked at anyway, else the one
of its name, else any; tests/headers makes one for every header of the library.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77  # what ctest takes for it
MAINS = ("origin/HEAD", "origin/main", "main")
GROUP = re.compile(r"/Unity/unity_\d+_cxx\.cxx$")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def say(text):
    print(f"lint: {text}", flush=True)


# --- what changed ---------------------------------------------------------------------------------


def git(root, *arguments):
    """What git says; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True,
                              check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_base(root):
    head = git(root, "rev-parse", "--verify", "HEAD")
    for main in MAINS:
        fork = git(root, "merge-base", "HEAD", main)
        if fork and fork != head:
            return fork
    return git(root, "rev-parse", "--verify", "HEAD~1")


def changed_files(root, base):
    """Paths from the root, also of files that git does not know yet; None where git fails."""
    changed = git(root, "diff", "--name-only", "--diff-filter=d", base)
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return None if changed is None or new is None else sorted({*changed.split(), *new.split()})


# --- what the build compiles ----------------------------------------------------------------------


def ungrouped(commands):
    """The commands, with one for each source of a group (CMAKE_UNITY_BUILD)."""
    for entry in commands:
        group = os.path.join(entry["directory"], entry["file"])
        if not GROUP.search(group):
            yield entry
            continue
        with open(group, encoding="utf-8") as file:
            sources = INCLUDE.findall(file.read())
        for source in sources:
            path = os.path.normpath(os.path.join(os.path.dirname(group), source))
            yield {**entry, "file": path,
                   "command": entry["command"].replace(entry["file"], path)}


class Database:
    """The sources of compile_commands.json and what each includes, directly or not."""

    def __init__(self, root, commands):
        self.root = root
        self.folders = {}  # by source: where it looks for includes
        self.includes = {}  # by file: names
        self.reached = {}  # by source: headers of ours
        for entry in commands:
            source = self.path(os.path.join(entry["directory"], entry["file"]))
            command = entry.get("command") or " ".join(entry["arguments"])
            self.folders[source] = re.findall(r"-I\s*(\S+)", command)

    def path(self, file):
        return os.path.relpath(os.path.normpath(file), self.root)

    def names_in(self, path):
        if path not in self.includes:
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                self.includes[path] = INCLUDE.findall(file.read())
        return self.includes[path]

    def direct(self, path, source):
        """Headers of ours that a file includes where it is compiled as part of `source`."""
        folders = [os.path.dirname(os.path.join(self.root, path)), *self.folders[source]]
        for name in self.names_in(path):
            found = next((file for folder in folders
                          if os.path.isfile(file := os.path.join(folder, name))), None)
            if found:
                yield self.path(found)

    def headers_of(self, source):
        if source not in self.reached:
            found, left = set(), [source]
            while left:
                more = set(self.direct(left.pop(), source)) - found
                found |= more
                left += more
            self.reached[source] = found
        return self.reached[source]

    def source_for(self, header, chosen):
        """The one by which a header is best looked at; None: nothing includes it."""
        stem = os.path.splitext(header)[0]
        there = (source for source in self.folders
                 if os.path.exists(os.path.join(self.root, source)))
        users = [source for source in there if header in self.headers_of(source)]
        return min(users, default=None, key=lambda source: (
            source not in chosen, header not in self.direct(source, source),
            os.path.splitext(source)[0] != stem, len(self.headers_of(source)), source))


def choose(database, changed):
    """The sources to look at, and changed files that the build does not compile."""
    chosen = [path for path in changed if path.endswith(".cpp") and path in database.folders]
    apart = [path for path in changed if path.endswith(".cpp") and path not in database.folders]
    for header in (path for path in changed if path.endswith(".hpp")):
        source = database.source_for(header, chosen)
        if source is None:
            apart.append(header)
        elif source not in chosen:
            chosen.append(source)
    return chosen, apart


# --- clang-tidy -----------------------------------------------------------------------------------

# Older ones know no std::source_location.
CLANG_TIDY = "clang-tidy-16"


NOT_FOR_CLANG = re.compile(r" -fcoroutines| -fpch-preprocess| -include \S*/cmake_pch\.hxx"
                           r"| -mmemset-strategy=\S*")


def write_database(tree, commands):
    """clang knows no flags of gcc alone, and cannot read headers that gcc has precompiled."""
    folder = os.path.join(tree, "lint")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        file.write(NOT_FOR_CLANG.sub("", json.dumps(commands, indent=1)))
    return folder


def header_filter(changed):
    """Breaches in other headers are not this change's; None: in all of ours."""
    if changed is None:
        return []
    headers = "|".join(re.escape(path) for path in changed if path.endswith(".hpp"))
    return [f"--header-filter=/({headers})$" if headers else "--header-filter=^$"]


def look_at(root, folder, source, options):
    """What clang-tidy has to say; empty where all is well."""
    done = subprocess.run(
        [CLANG_TIDY, "-p", folder, "--quiet", "--warnings-as-errors=*", *options,
         "--extra-arg=-Wno-unknown-warning-option",  # gcc's, as groups need them
         "--extra-arg=-Wno-sign-conversion",  # part of clang's -Wconversion, not of gcc's
         "--extra-arg=-Wno-unsequenced", source],  # clang 16 sees what a co_await has twice
        cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return done.stdout + done.stderr or f"{source}: clang-tidy ended with {done.returncode}\n"


def lint(root, folder, sources, changed, jobs):
    say(f"clang-tidy on {len(sources)} files: {' '.join(sources)}")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for text in pool.map(
                lambda source: look_at(root, folder, source, header_filter(changed)), sources):
            failed += bool(text)
            sys.stdout.write(text)
    if failed:
        say(f"clang-tidy is not content with {failed} of them")
    return 1 if failed else 0


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", help="with compile_commands.json")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--most", type=int, help="files; more are left to PITH_TEST_FULL=1")
    parser.add_argument("--or-skip", action="store_true", help="where nobody knows what changed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args(arguments)


def main(arguments=None):
    options = options_of(arguments)
    root = os.path.realpath(options.root)
    if not shutil.which(CLANG_TIDY):
        say(f"skipped: {CLANG_TIDY} is not installed")
        return SKIPPED
    with open(os.path.join(options.tree, "compile_commands.json"), encoding="utf-8") as file:
        commands = list(ungrouped(json.load(file)))
    database = Database(root, commands)
    base = options.base or find_base(root)
    changed = changed_files(root, base) if base else None
    if changed is None and options.or_skip:
        say(f"skipped: there is no commit to compare {root} with: nobody knows what changed")
        return SKIPPED
    if changed is None:
        chosen, apart = [path for path in database.folders if path.endswith(".cpp")], []
    else:
        chosen, apart = choose(database, changed)
    if apart:
        say(f"not compiled here, so not looked at: {' '.join(apart)}")
    if not chosen:
        say(f"no source changed since {base}: nothing for clang-tidy")
        return 0
    if options.most and len(chosen) > options.most and not os.environ.get("PITH_TEST_FULL"):
        say(f"skipped: {len(chosen)} files changed since {base}, and more than {options.most} are "
            "looked at by `./pith lint` and `./pith test --full`")
        return SKIPPED
    return lint(root, write_database(options.tree, commands), chosen, changed, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
