#!/usr/bin/env python3
"""Each house rule against a snippet that keeps it and one that breaks it."""
import unittest

import tidy

FILES = {"src/core/task.hpp", "src/kernels/reduce.hpp", "src/compress/topk.hpp",
         "src/comm/comm.hpp", "transport/transport.hpp", "transport/tcp.hpp",
         "collectives/call.hpp", "include/pith/pith.h", "tests/catch.hpp"}


def breaches(rule, text, path="src/comm/a.cpp"):
    return list(rule(tidy.Source(path, text)))


class OneFile(unittest.TestCase):
    def keeps(self, rule, text, path="src/comm/a.cpp"):
        self.assertEqual(breaches(rule, text, path), [])

    def breaks(self, rule, text, path="src/comm/a.cpp"):
        self.assertEqual(len(breaches(rule, text, path)), 1)

    def test_sizes(self):
        self.keeps(tidy.check_columns, "x" * 100)
        self.breaks(tidy.check_columns, "x" * 101)
        self.keeps(tidy.check_file_length, "x\n" * 800)
        self.breaks(tidy.check_file_length, "x\n" * 801)

    def test_words(self):
        self.keeps(tidy.check_words, "// to do is not to say\nint TODOS; mktemp XX" "XX")
        self.breaks(tidy.check_words, "// TO" "DO: later")

    def test_header(self):
        self.keeps(tidy.check_header, "#pragma once\nusing std::span;", "src/comm/a.hpp")
        self.keeps(tidy.check_header, "#ifndef P_H\n#define P_H\n#endif", "include/pith/pith.h")
        self.breaks(tidy.check_header, "#ifndef A\n#define A\n#endif", "src/comm/a.hpp")
        self.breaks(tidy.check_header, "#pragma once\nusing namespace std;", "src/comm/a.hpp")
        self.keeps(tidy.check_header, "#if defined(A) == defined(HWY_TARGET_TOGGLE)",
                   "src/kernels/a-inl.hpp")
        self.keeps(tidy.check_header, "#pragma once\n// using namespace std", "src/comm/a.hpp")

    def test_getenv(self):
        self.keeps(tidy.check_calls, "auto x = getenv(name);", "src/core/settings.cpp")
        self.keeps(tidy.check_calls, "auto x = getenv(name);", "tests/core/test_a.cpp")
        self.breaks(tidy.check_calls, "auto x = std::getenv(name);", "perf/main.cpp")
        self.keeps(tidy.check_calls, "auto x = std::getenv(name);", "perf/peers/openmpi.cpp")

    def test_prints(self):
        self.keeps(tidy.check_calls, 'snprintf(b, n, "printf");  // printf')
        self.keeps(tidy.check_calls, "printf(x);", "tools/info.cpp")
        self.breaks(tidy.check_calls, "std::fprintf(stderr, x);")
        self.breaks(tidy.check_calls, "std::cerr << x;", "transport/transport.hpp")

    def test_exits(self):
        self.keeps(tidy.check_calls, "engine.abort(error); void abort(Error e); x->exit();")
        self.keeps(tidy.check_calls, "void Engine::abort(Error error) {")
        self.keeps(tidy.check_calls, "std::abort();", "src/core/log.cpp")
        self.breaks(tidy.check_calls, "if (x) std::abort();")
        self.breaks(tidy.check_calls, "  ::_exit(1);")
        self.breaks(tidy.check_calls, "  abort();")

    def test_catch(self):
        test = "tests/core/test_a.cpp"
        self.keeps(tidy.check_catch, '#include "catch.hpp"\nCHECK(x == Approx(1));', test)
        self.keeps(tidy.check_catch, "int main() { return Catch::Session().run(); }", test)
        self.keeps(tidy.check_catch, '// Catch::Approx\nf("Catch::Approx");', test)
        self.keeps(tidy.check_catch, "#include <catch2/catch.hpp>\nusing Catch::Approx;",
                   "tests/catch.hpp")
        self.breaks(tidy.check_catch, "CHECK(x == Catch::Approx(1));", test)
        self.breaks(tidy.check_catch, "using namespace Catch;", test)
        self.breaks(tidy.check_catch, "#include <catch2/catch_approx.hpp>", test)

    def test_lambda_in_await(self):
        self.keeps(tidy.check_coroutines, "co_await run(table[i](x), y);")
        self.keeps(tidy.check_coroutines, "auto f = [&](int x) { return x; }; co_await g(f);")
        self.keeps(tidy.check_coroutines, "if (!(co_await f(x))) g([] { h(); });")
        self.breaks(tidy.check_coroutines, "co_await run([&](int x) { return x; });")
        self.breaks(tidy.check_coroutines, "auto x = co_await [] { return f(); }();")
        self.breaks(tidy.check_coroutines, "if (co_await run(a, [=]() { return a; })) {}")

    def test_binding_on_await(self):
        self.keeps(tidy.check_coroutines, "auto both = co_await f(); auto [a, b] = both;")
        self.breaks(tidy.check_coroutines, "auto [a, b] = co_await f();")
        self.breaks(tidy.check_coroutines, "const auto& [a, b] = *(co_await f());")


class Functions(unittest.TestCase):
    def count(self, text):
        code = tidy.blank_comments_and_literals(text)
        return [code[first:last + 1].split("(")[0].split()[-1]
                for first, last in tidy.functions(code)]

    def test_finds(self):
        self.assertEqual(self.count("namespace a { int f(int x = 3) { if (x) { g(); } } }"), ["f"])
        self.assertEqual(self.count("struct A : B<int> { A(int x) : x_{x} { g(); } };"), ["A"])
        self.assertEqual(self.count("class alignas(64) A { void g() const noexcept { } };"), ["g"])
        self.assertEqual(self.count("bool f(A a) { return a == b; } int x{3};"), ["f"])
        self.assertEqual(self.count("struct A make(struct B b) { return {}; }"), ["make"])
        self.assertEqual(self.count("#define F(x) {\\\n x }\nint f() { char c = '{'; }"), ["f"])
        self.assertEqual(self.count("A::A() : x{1}, y(2), z{3} { if (x) { } } int g() { }"),
                         ["A::A", "g"])
        self.assertEqual(self.count("template <class T = V<int>> void f() { if (x) { } }"), ["f"])
        self.assertEqual(self.count("int table[] = {f(1), g(2)}; enum class E { a, b };"), [])

    def test_length(self):
        body = "int f() {\n" + "  g();\n" * 68 + "}\n"
        self.assertEqual(breaches(tidy.check_functions, body), [])
        longer = body.replace("}", "  g();\n}")
        self.assertEqual(breaches(tidy.check_functions, longer),
                         ["src/comm/a.cpp:1: function of 71 lines, at most 70"])
        operator = longer.replace("int f()", "bool operator==(A a, B b)")
        self.assertEqual(len(breaches(tidy.check_functions, operator)), 1)
        case = longer.replace("int f()", 'TEST_CASE("a { b", "[x]")')
        self.assertEqual(len(breaches(tidy.check_functions, case)), 1)


class Includes(unittest.TestCase):
    def allowed(self, path, name):
        source = tidy.Source(path, f'// why\n#include "{name}"\n')
        return not list(tidy.check_includes(source, FILES.__contains__))

    def test_arrows(self):
        self.assertTrue(self.allowed("src/core/engine.cpp", "core/task.hpp"))
        self.assertTrue(self.allowed("src/core/engine.cpp", "task.hpp"))
        self.assertTrue(self.allowed("src/core/engine.cpp", "somewhere/else.hpp"))
        self.assertTrue(self.allowed("src/api/pith.cpp", "pith/pith.h"))
        self.assertTrue(self.allowed("src/comm/comm.cpp", "kernels/reduce.hpp"))
        self.assertTrue(self.allowed("src/comm/comm.cpp", "transport/tcp.hpp"))
        self.assertTrue(self.allowed("transport/tcp.cpp", "transport.hpp"))
        self.assertTrue(self.allowed("tests/a.cpp", "transport/tcp.hpp"))
        self.assertFalse(self.allowed("src/core/engine.cpp", "kernels/reduce.hpp"))
        self.assertFalse(self.allowed("transport/transport.hpp", "comm/comm.hpp"))
        self.assertFalse(self.allowed("src/kernels/reduce.cpp", "transport/transport.hpp"))
        self.assertFalse(self.allowed("include/pith/pith.h", "core/task.hpp"))
        self.assertFalse(self.allowed("src/comm/comm.cpp", "tests/catch.hpp"))
        self.assertFalse(self.allowed("src/newcomer/a.cpp", "core/task.hpp"))

    def test_algorithms_see_only_the_seam(self):
        self.assertTrue(self.allowed("collectives/ring.cpp", "transport/transport.hpp"))
        self.assertTrue(self.allowed("collectives/ring.cpp", "compress/topk.hpp"))
        self.assertFalse(self.allowed("collectives/ring.cpp", "transport/tcp.hpp"))
        self.assertFalse(self.allowed("collectives/ring.cpp", "../src/kernels/reduce.hpp"))
        self.assertFalse(self.allowed("src/compress/topk.cpp", "transport/transport.hpp"))


class Tree(unittest.TestCase):
    def dead(self, cmake, *paths):
        texts = {"src/a/CMakeLists.txt": cmake}
        return list(tidy.check_dead_files([*texts, *paths], texts.get))

    def test_dead_files(self):
        self.assertEqual(self.dead("add_library(a x.cpp)", "src/a/x.cpp"), [])
        self.assertEqual(self.dead("file(GLOB s test_*.cpp)", "src/a/test_x.cpp"), [])
        self.assertEqual(self.dead("add_library(a ${d}/${n}_perf.cpp)", "src/a/x_perf.cpp"), [])
        self.assertEqual(len(self.dead("# x.cpp", "src/a/x.cpp")), 1)
        self.assertEqual(len(self.dead("add_library(a x.cpp)", "src/b/x.cpp")), 1)

    def test_one_definition(self):
        def breaches(*texts):
            sources = [tidy.Source(f"src/core/{i}.hpp", text) for i, text in enumerate(texts)]
            return list(tidy.check_one_definition(sources))

        a = "namespace pith {\nstruct A {\n};\n}\n"
        self.assertEqual(breaches(a, a.replace("struct A", "class B : public A")), [])
        self.assertEqual(breaches(a, a.replace("pith", "pith::cuda")), [])
        hidden = "namespace {\nvoid f() {\n}\nstruct A {\n};\n}  // namespace\n"
        hidden = f"namespace pith {{\n{hidden}}}\n"
        self.assertEqual(breaches(a, hidden), [])
        self.assertEqual(breaches(a, "namespace pith {\nstruct A;\n}\n"), [])
        self.assertEqual(len(breaches(a, a.replace("struct", "class"))), 1)

    def test_readme(self):
        self.assertEqual(list(tidy.check_readme("README.md", "x\n" * 300)), [])
        self.assertEqual(list(tidy.check_readme("src/README.md", "x\n" * 40)), [])
        self.assertEqual(len(list(tidy.check_readme("src/README.md", "x\n" * 41))), 1)

    def folders(self, table, without=()):
        texts = {"README.md": table, **{f"{top}/README.md": "what" for top in tidy.TOP}}
        for path in without:
            del texts[path]
        return list(tidy.check_folders(list(texts), texts.get))

    def test_folders(self):
        table = "".join(f"| `{top}/` | what |\n" for top in tidy.TOP)
        self.assertEqual(self.folders(table), [])
        self.assertEqual(self.folders(table.replace("`src/`", "`src/core/`")), [])
        self.assertEqual(self.folders(table.replace("| `src/`", "in `src/`")),
                         ["README.md:1: no row of a table begins with `src/`"])
        self.assertEqual(len(self.folders(table.replace("`src/`", "`srcs/`"))), 1)
        self.assertEqual(self.folders(table, ["perf/README.md"]),
                         ["perf/README.md:1: there is none"])
        self.assertEqual(self.folders(table, ["README.md"]), ["README.md:1: there is none"])

    def links(self, text, path="README.md"):
        return list(tidy.check_links(path, text, {"src", "src/a.cpp", "perf/b.py"}.__contains__))

    def test_links(self):
        self.assertEqual(self.links("[a](src) [b](src/a.cpp) [`c`](perf/b.py#part)"), [])
        self.assertEqual(self.links("[a](https://example.org/x) [b](mailto:a@b.c)"), [])
        self.assertEqual(self.links("[a](a.cpp) [b](../perf/b.py)", "src/README.md"), [])
        self.assertEqual(self.links("`f[0](x)`\n```c\ng[1](y);\n```\n"), [])
        self.assertEqual(self.links("```\n[0](x)\n```\n[a](b.cpp)\n"),
                         ["README.md:4: link to b.cpp, which is not there"])
        self.assertEqual(len(self.links("[a](b.py)", "src/README.md")), 1)
        heading = "## Many `processes`, at once\n"
        self.assertEqual(self.links(heading + "[a](#many-processes-at-once)"), [])
        self.assertEqual(self.links(heading + "[a](#few)"),
                         ["README.md:2: link to #few, a heading that is not there"])

    def test_literals(self):
        text = 'f("a // b", \'"\', 1\'000); // c "d\nR"x({)x" /* e\n*/ g'
        blank = tidy.blank_comments_and_literals(text)
        self.assertEqual(len(blank), len(text))
        self.assertEqual(blank.split(), ['f("', '",', '"', '",', "1'000);", '"', '"', "g"])


if __name__ == "__main__":
    unittest.main()
