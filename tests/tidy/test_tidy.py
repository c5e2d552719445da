#!/usr/bin/env python3
"""Each house rule that looks at one file, against a text that keeps it and one that breaks it."""
import unittest

import tidy

HEADER = "src/comm/a.hpp"
TEST = "tests/core/test_a.cpp"
SHORT = "int f() {\n" + "  g();\n" * 68 + "}\n"
CLASS = """class A final : public B<void()> {
 public:
  template <class T> A(T x = {}) : x_{1}, y_(2) { g(); }
  A(const A&) = delete;
  int operator()(int) const { return 1; }
""" + "  bool f(std::function<void(int)> g = {}) noexcept;\n" * 28 + """
  static constexpr int most = 3;
  struct Inner { int a, b; void f(); };
 private:
  std::function<void(int)> z_ = [] { g(); };
  void (*told_)(int, int) = nullptr;
""" + "  std::size_t x_ = std::size_t{1} << 3, y_{f(2)};\n" * 9 + "};\n"

GROUP = CLASS.replace(" A ", " Group ").replace("\n};", "\n  void f();\n  void g();\n};")

# rule: what keeps it, what breaks it, the file that both stand in.
RULES = [
    (tidy.check_columns, "x" * 100, "x" * 101, "src/comm/a.cpp"),
    (tidy.check_file_length, "x\n" * 500, "x\n" * 501, "src/comm/a.cpp"),
    (tidy.check_words, "// to do is not to say\nint TODOS;", "// TO" "DO: later", "src/comm/a.cpp"),
    (tidy.check_header, "#pragma once\nusing std::span;", "#pragma once\nusing namespace std;",
     HEADER),
    (tidy.check_calls, 'snprintf(b, n, "printf");  // getenv', "std::fprintf(stderr, x);", HEADER),
    (tidy.check_catch, '#include "catch.hpp"\nCHECK(x == Approx(1));',
     "CHECK(x == Catch::Approx(1));", TEST),
    (tidy.check_coroutines, "auto f = [&](int x) { return x; }; co_await g(f);",
     "co_await run([&](int x) { return x; });", "src/comm/a.cpp"),
    (tidy.check_coroutines, "auto both = co_await f(); auto [a, b] = both;",
     "auto [a, b] = co_await f();", "src/comm/a.cpp"),
    (tidy.check_coroutines, "if (Error e = co_await f()) co_return e; if (a == b) co_await g();",
     "if (a == b && !co_await f()) co_return e;", "src/comm/a.cpp"),
    (tidy.check_functions, SHORT, SHORT.replace("}", "  g();\n}"), "src/comm/a.cpp"),
    (tidy.check_classes, CLASS, CLASS.replace("\n};", "\n  void g();\n};"), HEADER),
    (tidy.check_classes, CLASS, CLASS.replace("\n};", "\n  long y = 1;\n};"), HEADER),
    (tidy.check_classes, GROUP, GROUP.replace("\n};", "\n  void h();\n};"), HEADER),
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

    def test_folder_sizes(self):
        files = [f"src/core/{i}.hpp" for i in range(50)] + [f"tests/a/{i}.cpp" for i in range(60)]
        self.assertEqual(list(tidy.check_folder_sizes(files)), [])
        self.assertEqual(len(list(tidy.check_folder_sizes([*files, "src/core/x.cpp"]))), 1)


if __name__ == "__main__":
    unittest.main()
