#!/usr/bin/env python3
"""Each house rule that looks at one file, against a text that keeps it and one that breaks it."""
import unittest

import tidy

HEADER = "src/comm/a.hpp"
TEST = "tests/core/test_a.cpp"
SHORT = "int f() {\n" + "  g();\n" * 68 + "}\n"

# rule: what keeps it, what breaks it, the file that both stand in.
RULES = [
    (tidy.check_columns, "x" * 100, "x" * 101, "src/comm/a.cpp"),
    (tidy.check_file_length, "x\n" * 800, "x\n" * 801, "src/comm/a.cpp"),
    (tidy.check_words, "// to do is not to say\nint TODOS;", "// TO" "DO: later", "src/comm/a.cpp"),
    (tidy.check_header, "#pragma once\nusing std::span;", "#pragma once\nusing namespace std;",
     HEADER),
    (tidy.check_calls, 'snprintf(b, n, "printf");  // getenv', "std::fprintf(stderr, x);", HEADER),
    (tidy.check_catch, '#include "catch.hpp"\nCHECK(x == Approx(1));',
     "CHECK(x == Catch::Approx(1));", TEST),
    (tidy.check_coroutines, "auto f = [&](int x) { return x; }; co_await g(f);",
     "co_await run([&](int x) { return x; });", "src/comm/a.cpp"),
    (tidy.check_functions, SHORT, SHORT.replace("}", "  g();\n}"), "src/comm/a.cpp"),
]


class Rules(unittest.TestCase):
    def test_of_one_file(self):
        for rule, keeps, breaks, path in RULES:
            with self.subTest(rule=rule.__name__, breaks=breaks[:40]):
                self.assertEqual(list(rule(tidy.Source(path, keeps))), [])
                self.assertEqual(len(list(rule(tidy.Source(path, breaks)))), 1)

    def test_include_arrows(self):
        files = {"src/core/task.hpp", "src/kernels/reduce.hpp"}
        for path, name, breaches in (("src/kernels/reduce.cpp", "core/task.hpp", 0),
                                     ("src/core/engine.cpp", "kernels/reduce.hpp", 1)):
            source = tidy.Source(path, f'// why\n#include "{name}"\n')
            self.assertEqual(len(list(tidy.check_includes(source, files.__contains__))), breaches)

    def test_dead_files(self):
        for cmake, dead in (("add_library(a x.cpp)", 0), ("# x.cpp", 1)):
            texts = {"src/a/CMakeLists.txt": cmake}
            self.assertEqual(len(list(tidy.check_dead_files([*texts, "src/a/x.cpp"], texts.get))),
                             dead, cmake)


if __name__ == "__main__":
    unittest.main()
