#!/usr/bin/env python3
"""Each house rule against a text that keeps it and one that breaks it."""
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

# rule: what keeps it, what breaks it, the file that both stand in.
RULES = [
    (tidy.check_columns, "x" * 100, "x" * 101, "src/comm/a.cpp"),
    (tidy.check_file_length, "x\n" * 500, "x\n" * 501, "src/comm/a.cpp"),
    (tidy.check_words, "// to do is not to say\nint TODOS;", "// TO" "DO: later", "src/comm/a.cpp"),
    (tidy.check_header, "#pragma once\n// using namespace std", "#ifndef A\n#define A\n#endif",
     HEADER),
    (tidy.check_header, "#pragma once\nusing std::span;", "#pragma once\nusing namespace std;",
     HEADER),
    (tidy.check_calls, 'snprintf(b, n, "printf");  // getenv', "std::fprintf(stderr, x);", HEADER),
    (tidy.check_calls, "auto x = environment(name);", "auto x = std::getenv(name);", HEADER),
    (tidy.check_calls, "engine.abort(error); void abort(Error e);", "if (x) std::abort();", HEADER),
    (tidy.check_catch, '#include "catch.hpp"\nCHECK(x == Approx(1));',
     "CHECK(x == Catch::Approx(1));", TEST),
    (tidy.check_catch, '// Catch::Approx\nf("Catch::Approx");',
     "#include <catch2/catch_approx.hpp>", TEST),
    (tidy.check_coroutines, "auto f = [&](int x) { return x; }; co_await g(f);",
     "co_await run([&](int x) { return x; });", "src/comm/a.cpp"),
    (tidy.check_coroutines, "auto both = co_await f(); auto [a, b] = both;",
     "auto [a, b] = co_await f();", "src/comm/a.cpp"),
    (tidy.check_coroutines, "if (Error e = co_await f()) co_return e; if (a == b) co_await g();",
     "if (a == b && !co_await f()) co_return e;", "src/comm/a.cpp"),
    (tidy.check_functions, SHORT, SHORT.replace("}", "  g();\n}"), "src/comm/a.cpp"),
    (tidy.check_functions, SHORT, SHORT.replace("int f()", 'TEST_CASE("a { b", "[x]")').replace(
        "}", "  g();\n}"), TEST),
    (tidy.check_classes, CLASS, CLASS.replace("\n};", "\n  void g();\n};"), HEADER),
    (tidy.check_classes, CLASS, CLASS.replace("\n};", "\n  long y = 1;\n};"), HEADER),
    (tidy.check_classes, CLASS.replace(" A ", " Links ").replace("\n};", "\n  void g();\n};"),
     CLASS.replace(" A ", " Links ").replace("\n};", "\n  void f();\n  void g();\n};"), HEADER),
]


class Rules(unittest.TestCase):
    def test_of_one_file(self):
        for rule, keeps, breaks, path in RULES:
            with self.subTest(rule=rule.__name__, breaks=breaks[:40]):
                self.assertEqual(list(rule(tidy.Source(path, keeps))), [])
                self.assertEqual(len(list(rule(tidy.Source(path, breaks)))), 1)

    def test_functions_are_found(self):
        code = tidy.blank_comments_and_literals(
            "namespace a { int f(int x = 3) { if (x) { g(); } } } struct A : B<int> { A(int x) : "
            "x_{x} { char c = '{'; } }; int table[] = {f(1), g(2)}; A::A() : x{1}, y(2) { }")
        self.assertEqual([code[first:last + 1].split("(")[0].split()[-1]
                          for first, last in tidy.functions(code)], ["f", "A", "A::A"])

    def test_include_arrows(self):
        files = {"src/core/task.hpp", "src/kernels/reduce.hpp", "transport/tcp.hpp"}

        def allowed(path, name):
            source = tidy.Source(path, f'// why\n#include "{name}"\n')
            return not list(tidy.check_includes(source, files.__contains__))

        self.assertTrue(allowed("src/kernels/reduce.cpp", "core/task.hpp"))
        self.assertTrue(allowed("tests/a.cpp", "transport/tcp.hpp"))
        self.assertFalse(allowed("src/core/engine.cpp", "kernels/reduce.hpp"))
        self.assertFalse(allowed("collectives/ring.cpp", "transport/tcp.hpp"))
        self.assertFalse(allowed("src/newcomer/a.cpp", "core/task.hpp"))

    def test_dead_files(self):
        for cmake, dead in (("add_library(a x.cpp)", 0), ("file(GLOB s *.cpp)", 0), ("# x.cpp", 1)):
            texts = {"src/a/CMakeLists.txt": cmake}
            self.assertEqual(len(list(tidy.check_dead_files([*texts, "src/a/x.cpp"], texts.get))),
                             dead, cmake)

    def test_folder_sizes(self):
        files = [f"src/core/{i}.hpp" for i in range(50)] + [f"tests/a/{i}.cpp" for i in range(60)]
        self.assertEqual(list(tidy.check_folder_sizes(files)), [])
        self.assertEqual(len(list(tidy.check_folder_sizes([*files, "src/core/x.cpp"]))), 1)

    def test_one_definition(self):
        for other, breaches in (("class B : public A", 0), ("class A", 1)):
            texts = ("namespace pith {\nstruct A {\n};\n}\n",
                     f"namespace pith {{\n{other} {{\n}};\n}}\n")
            sources = [tidy.Source(f"src/core/{i}.hpp", text) for i, text in enumerate(texts)]
            self.assertEqual(len(list(tidy.check_one_definition(sources))), breaches)

    def test_readmes(self):
        self.assertEqual(list(tidy.check_readme("src/README.md", "x\n" * 40)), [])
        self.assertEqual(len(list(tidy.check_readme("src/README.md", "x\n" * 41))), 1)
        table = "".join(f"| `{top}/` | what |\n" for top in tidy.TOP)
        texts = {"README.md": table, **{f"{top}/README.md": "what" for top in tidy.TOP}}
        self.assertEqual(list(tidy.check_folders(list(texts), texts.get)), [])
        texts["README.md"] = table.replace("| `src/`", "in `src/`")
        self.assertEqual(len(list(tidy.check_folders(list(texts), texts.get))), 1)

    def test_links(self):
        text = "```\n[0](x)\n```\n## A `heading`\n[a](src) [b](#a-heading) [c](b.cpp) [d](#few)\n"
        self.assertEqual(list(tidy.check_links("README.md", text, {"src"}.__contains__)),
                         ["README.md:5: link to b.cpp, which is not there",
                          "README.md:5: link to #few, a heading that is not there"])


if __name__ == "__main__":
    unittest.main()
