#!/usr/bin/env python3
"""House rules as a test: tidy.py ROOT prints one line per breach and fails if there is any.

Each rule is a function from a Source (or the whole tree) to breaches, tested on small snippets in
test_tidy.py. The rules work on text, not on an AST: they must run in a second, without packages.
"""
import collections
import fnmatch
import os
import re
import sys

from cpp_text import blank_comments_and_literals, classes, functions

CODE = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh")
HEADERS = (".hpp", ".h", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake")
TOP = ("include", "src", "transport", "collectives", "cuda", "perf", "tests", "tools", "docs")

MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 500
SOFT_FILE_LINES = 400
MAX_FOLDER_FILES = 50
MAX_CLASS_FUNCTIONS = 30
MAX_CLASS_MEMBERS = 20
MAX_README_LINES = 40

# Who may include whom; a folder may always include itself and the public header. "seam" is
# transport/transport.hpp alone: algorithms that saw a transport could not run on all of them.
BELOW_MODEL = {"core", "seam", "compress", "collectives"}
BELOW_WORLD = BELOW_MODEL | {"crypto", "settings", "model", "kernels", "transport", "control"}
COMM = {"startup", "streams", "comm"}  # one library of three folders
BELOW_API = BELOW_WORLD | COMM | {"cuda"}
MAY_INCLUDE = {
    "public": set(),
    "core": set(),
    "crypto": {"core"},
    "settings": {"core"},
    "kernels": {"core"},
    "transport": {"core", "seam", "crypto", "settings"},
    "cuda": {"core", "crypto"},
    "compress": {"core"},
    "collectives": {"core", "seam", "compress"},
    "model": BELOW_MODEL | {"settings"},
    "control": BELOW_MODEL | {"settings", "transport"},
    "world": BELOW_WORLD,
    "startup": BELOW_API,
    "streams": BELOW_API,
    "comm": BELOW_API,
    "api": BELOW_API,
    "nccl": BELOW_API | {"api"},
    "perf": BELOW_API | {"api", "nccl", "world"},
    "tools": BELOW_API | {"api", "world"},
}
LIBRARY = set(MAY_INCLUDE) - {"perf", "tools"}

# Functions and data members of what is larger than the rule for classes allows: they may shrink and
# not grow, and there shall be no more of them.
LARGE_CLASSES = {
    "Call": (41, 20),
    "Compression": (30, 23),
    "Compressor": (59, 28),
    "ControlWorld": (34, 20),
    "CudaCompute": (40, 25),
    "Group": (32, 20),
    "SimWorld": (36, 20),
    "TcpTransport": (43, 20),
    "TopkSelector": (32, 22),
    "UcxRanks": (45, 20),
    # Lists of fields, without behaviour.
    "Bench": (30, 22),
    "Options": (30, 32),
    "Scheme": (30, 22),
    "Settings": (30, 39),
    "State": (30, 22),
    "UcxLibrary": (30, 29),
    "VerbsLibrary": (30, 31),
}

# Spelt in two halves so that this file passes its own rule.
BANNED_WORDS = re.compile(r"\b(" + "|".join(("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK")) + r")\b")
PRINTS = re.compile(r"\b(?:v?f?printf|f?puts|putchar|cout|cerr|clog)\b")
CATCH = re.compile(r"\bCatch\s*::\s*(?!Session\b)\w*|\bnamespace\s+Catch\b|<catch2/")
# A method may be called abort; the function is called qualified or at the start of a statement.
EXITS = re.compile(r"(?:\bstd::|(?<![\w:>.~])::)(?:abort|exit|_exit|quick_exit|terminate)\s*\(|"
                   r"(?:^|[;{})])\s*(?:abort|exit|_exit)\s*\([^()]*\)\s*;")


class Source:
    """One file: its path from the root, its text, and the text without comments and literals."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.splitlines()
        self.is_code = path.endswith(CODE)
        self.code = blank_comments_and_literals(text) if self.is_code else text
        self.layer = layer_of(path)

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def breach(self, line, message):
        return f"{self.path}:{line}: {message}"


def layer_of(path):
    """The folder that the arrows speak of, or None where they do not apply (tests)."""
    parts = path.split("/")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    if path == "transport/transport.hpp":
        return "seam"
    if parts[0] == "include":
        return "public"
    return parts[0] if parts[0] in MAY_INCLUDE else None


# --- rules on one file ----------------------------------------------------------------------------


def check_columns(source):
    for number, line in enumerate(source.lines, 1):
        if len(line) > MAX_COLUMNS:
            yield source.breach(number, f"{len(line)} columns, at most {MAX_COLUMNS}")


def check_file_length(source):
    if len(source.lines) > MAX_FILE_LINES:
        yield source.breach(1, f"{len(source.lines)} lines, at most {MAX_FILE_LINES}")


def check_words(source):
    for match in BANNED_WORDS.finditer(source.text):
        yield source.breach(source.line_of(match.start()), f"the word {match.group(1)}: do it, or "
                            "write down what is true today")


def check_header(source):
    if not source.path.endswith(HEADERS):
        return
    guarded = "#pragma once" in source.text
    if source.layer == "public":  # C knows no pragma once
        guarded = guarded or re.search(r"#ifndef (\w+)\s+#define \1\b", source.code)
    if source.path.endswith("-inl.hpp"):  # Highway includes these once per instruction set
        guarded = guarded or "HWY_TARGET_TOGGLE" in source.code
    if not guarded:
        yield source.breach(1, "header without #pragma once")
    for match in re.finditer(r"\busing\s+namespace\b", source.code):
        yield source.breach(source.line_of(match.start()), "using namespace in a header")


def check_calls(source):
    if source.layer and not source.path.startswith(("src/settings/", "perf/peers/")):
        for match in re.finditer(r"\b(?:secure_)?getenv\b", source.code):
            yield source.breach(source.line_of(match.start()), "getenv outside src/settings")
    if source.layer not in LIBRARY | {"seam"} or source.path.startswith("src/core/log"):
        return
    for number, line in enumerate(source.code.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        found = PRINTS.search(line)
        if found:
            yield source.breach(number, f"{found.group(0)} in the library: use core/log")
        if EXITS.search(line):
            yield source.breach(number, "the library never ends the process outside core/log")


def check_catch(source):
    """What differs between Catch2 2 and 3 is bridged by tests/catch.hpp, or not used at all."""
    if not source.path.startswith("tests/") or source.path == "tests/catch.hpp":
        return
    for match in CATCH.finditer(source.code):
        yield source.breach(source.line_of(match.start()),
                            f"{match.group(0)} in a test: use what tests/catch.hpp provides")


def operand_end(code, start):
    """Where the expression that starts here ends: at ; or , or a bracket that it did not open."""
    depth = 0
    for offset in range(start, len(code)):
        char = code[offset]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and char in ";,"):
            return offset
    return len(code)


LAMBDA = re.compile(r"\[[^\[\]]*\]\s*(?:\(|\{|mutable\b|<)")


def has_lambda(expression):
    for match in LAMBDA.finditer(expression):
        before = expression[:match.start()].rstrip()
        keyword = re.search(r"\b(?:return|co_return|co_await|co_yield)$", before)
        if not before or keyword or not re.search(r"[\w)\]]$", before):
            return True
    return False


def check_coroutines(source):
    """g++ 12 destroys such lambdas twice and may not end after such an if, see src/core/task.hpp;
    gcc 15 leaks such bindings."""
    for match in re.finditer(r"\bco_await\b", source.code):
        line = source.line_of(match.start())
        if has_lambda(source.code[match.end():operand_end(source.code, match.end())]):
            yield source.breach(line, "lambda inside a co_await expression: name it first")
    for match in re.finditer(r"\bif\s*\(", source.code):
        condition = source.code[match.end():operand_end(source.code, match.end())]
        if re.search(r"\bco_await\b", re.split(r"[^=!<>]=[^=]", condition)[0]):
            yield source.breach(source.line_of(match.start()), "co_await as an if's condition: "
                                "name its result first")
    for match in re.finditer(r"\bauto\s*&{0,2}\s*\[[^\]]*\]\s*=\s*([^;]*)", source.code):
        if re.search(r"\bco_await\b", match.group(1).split("{")[0]):
            yield source.breach(source.line_of(match.start()), "structured binding on co_await")


def check_includes(source, exists):
    """The arrows between folders. `exists` tells whether a path from the root is a file."""
    if source.layer is None:
        return
    own = "transport" if source.layer == "seam" else source.layer
    allowed = MAY_INCLUDE.get(own)
    if allowed is None:
        yield source.breach(1, f"folder '{own}' is unknown to the table in tests/tidy/tidy.py")
        return
    for match in re.finditer(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', source.code, re.M):
        target = resolve(source.path, match.group(1), exists)
        layer = layer_of(target) if target else None
        outside = target and layer is None
        if layer in (None, own, "public") and not outside:
            continue
        if layer not in allowed:
            yield source.breach(source.line_of(match.start(1)), f"{own} may not include {target}")


def resolve(path, name, exists):
    here = os.path.dirname(path)
    for folder in (here, "", "src", "include"):
        candidate = os.path.normpath(os.path.join(folder, name))
        if exists(candidate):
            return candidate
    return None


# --- functions and classes ------------------------------------------------------------------------


def check_functions(source):
    if not source.is_code:
        return
    for first, last in functions(source.code):
        length = source.line_of(last) - source.line_of(first) + 1
        if length > MAX_FUNCTION_LINES:
            yield source.breach(source.line_of(first),
                                f"function of {length} lines, at most {MAX_FUNCTION_LINES}")


def check_classes(source):
    if not source.is_code:
        return
    for offset, name, *counts in classes(source.code):
        limits = LARGE_CLASSES.get(name, (MAX_CLASS_FUNCTIONS, MAX_CLASS_MEMBERS))
        for what, count, limit in zip(("functions", "data members"), counts, limits):
            if count > limit:
                yield source.breach(source.line_of(offset),
                                    f"{name} has {count} {what}, at most {limit}")


# --- rules on the tree ----------------------------------------------------------------------------


def mentioned_patterns(cmake_text):
    """File names in a CMakeLists.txt; variables and globs become fnmatch patterns."""
    text = re.sub(r"#[^\n]*", "", cmake_text)
    names = re.findall(r"[\w./*?${}-]+\.(?:cpp|cu|c)\b", text)
    return [re.sub(r"\$\{[^}]*\}", "*", name).split("/")[-1] for name in names]


def check_dead_files(paths, read):
    """Each source is named by the CMakeLists.txt of its folder or of one above."""
    patterns = {os.path.dirname(path): mentioned_patterns(read(path))
                for path in paths if os.path.basename(path) == "CMakeLists.txt"}
    for path in paths:
        if not path.endswith((".cpp", ".cu", ".c")):
            continue
        folder, name, found = os.path.dirname(path), os.path.basename(path), False
        while not found:
            found = any(fnmatch.fnmatch(name, pattern) for pattern in patterns.get(folder, ()))
            if not folder:
                break
            folder = os.path.dirname(folder)
        if not found:
            yield f"{path}:1: no CMakeLists.txt names this file"


def check_folder_sizes(paths):
    """Of the library: whoever looks for something reads a list of names."""
    sizes = collections.Counter(os.path.dirname(path) for path in paths
                                if path.startswith(("src/", "transport/", "collectives/", "cuda/")))
    for folder, size in sorted(sizes.items()):
        if size > MAX_FOLDER_FILES:
            yield f"{folder}:1: {size} files, at most {MAX_FOLDER_FILES} in a folder"


NAMED_TYPE = re.compile(r"^(?:class|struct|union|enum class) (?:alignas\(.*?\) )?(\w+)"
                        r"(?: final)?(?: : [^{;]*)? \{", re.M)


def outer_types(source):
    """(namespace, name, offset) of types outside functions, classes and anonymous namespaces."""
    opened = re.search(r"^namespace ([\w:]+) \{", source.code, re.M)
    hidden = [(match.start(), source.text.find("\n}  // namespace\n", match.start()))
              for match in re.finditer(r"^namespace \{", source.code, re.M)]
    for match in NAMED_TYPE.finditer(source.code):
        if not any(begin < match.start() < end for begin, end in hidden):
            yield opened and opened.group(1), match.group(1), match.start()


def check_one_definition(sources):
    """Two types of one name in a namespace are undefined behaviour, even in files that never meet.
    A file may hold several for preprocessor branches."""
    first = {}
    for source in sources:
        for namespace, name, offset in outer_types(source):
            place = f"{source.path}:{source.line_of(offset)}"
            other = first.setdefault((namespace, name), (source.path, place))
            if other[0] != source.path:
                yield f"{place}: {name} is a type of {other[1]} too"


def check_readme(path, text):
    length = len(text.splitlines())
    if "/" in path and length > MAX_README_LINES:
        yield f"{path}:1: {length} lines, at most {MAX_README_LINES} in a folder's README.md"


def check_folders(paths, read):
    """Each top folder says what it is: in a README.md of its own, and in a table of the root's."""
    known = set(paths)
    if "README.md" not in known:
        yield "README.md:1: there is none"
        return
    rows = set(re.findall(r"^\|\s*`([\w./-]+?)/?`\s*\|", read("README.md"), re.M))
    for top in TOP:
        if f"{top}/README.md" not in known:
            yield f"{top}/README.md:1: there is none"
        if not any(row == top or row.startswith(top + "/") for row in rows):
            yield f"README.md:1: no row of a table begins with `{top}/`"


def check_links(path, text, exists):
    """Where a page of Markdown points to. `exists` tells whether a path from the root is there."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", lambda m: re.sub(r"[^\n]", "x", m.group(0)), text,
                   flags=re.S)
    headings = {anchor(line) for line in re.findall(r"^#+ +(.*)$", text, re.M)}
    for match in re.finditer(r"\]\(([^()\s]+)\)", prose):
        target, _, part = match.group(1).partition("#")
        where = f"{path}:{prose.count(chr(10), 0, match.start()) + 1}"
        if re.match(r"[a-z][a-z0-9+.-]*:", target):  # another site's affair
            continue
        if target and not exists(os.path.normpath(os.path.join(os.path.dirname(path), target))):
            yield f"{where}: link to {target}, which is not there"
        if not target and part not in headings:
            yield f"{where}: link to #{part}, a heading that is not there"


def anchor(heading):
    """The name by which viewers of Markdown let a heading be linked."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


FILE_RULES = (check_columns, check_file_length, check_words, check_header, check_calls,
              check_catch, check_coroutines, check_functions, check_classes)


def check_source(source, exists):
    if source.is_code:
        for rule in FILE_RULES:
            yield from rule(source)
        yield from check_includes(source, exists)
    else:
        for rule in (check_columns, check_file_length, check_words):
            yield from rule(source)


def tree(root):
    """Paths from the root, of our own files only: build trees lie beside the folders in TOP."""
    paths = [name for name in sorted(os.listdir(root)) if os.path.isfile(os.path.join(root, name))]
    for top in TOP:
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = sorted(n for n in subfolders if not n.startswith((".", "__")))
            paths += [os.path.relpath(os.path.join(folder, name), root) for name in sorted(names)]
    return paths


def check_tree(root):
    def read(path):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()

    paths = tree(root)
    known = set(paths)
    breaches, notes, library = [], [], []

    def exists(path):
        return os.path.exists(os.path.join(root, path))

    for path in paths:
        if os.path.basename(path) == "README.md":
            breaches += check_readme(path, read(path))
            breaches += check_links(path, read(path), exists)
        elif path.endswith(".md") and "/" not in path:  # CHANGELOG.md, CONTRIBUTING.md
            breaches += check_links(path, read(path), exists)
        elif path == "pith" or path.endswith(CODE + SCRIPTS) or path.endswith("CMakeLists.txt"):
            source = Source(path, read(path))
            breaches += check_source(source, known.__contains__)
            if source.is_code and source.layer in LIBRARY:
                library.append(source)
            if SOFT_FILE_LINES < len(source.lines) <= MAX_FILE_LINES:
                notes.append(f"{path}:1: note: {len(source.lines)} lines; {SOFT_FILE_LINES} is the "
                             "aim")
    breaches += check_one_definition(library)
    breaches += check_dead_files(paths, read)
    breaches += check_folders(paths, read)
    breaches += check_folder_sizes(paths)
    return breaches, notes


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    breaches, notes = check_tree(root)
    for line in notes + breaches:
        print(line)
    print(f"tidy: {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
