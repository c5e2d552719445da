#!/usr/bin/env python3
"""Numbers that stand in several files are the same, and the recipes can be read.
Usage: test_versions.py SOURCE_FOLDER"""
import ast
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()


def read(path):
    return (SOURCE / path).read_text(encoding="utf-8")


def found(path, pattern):
    match = re.search(pattern, read(path), re.M)
    if match is None:
        raise AssertionError(f"{path}: nothing matches {pattern}")
    return match.group(1)


class Versions(unittest.TestCase):
    def test_version(self):
        """That of the project, in CMakeLists.txt, counts."""
        version = found("CMakeLists.txt", r"^project\(pith VERSION ([\d.]+)")
        header = [found("include/pith/pith.h", rf"^#define PITH_{part} (\d+)$")
                  for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(".".join(header), version, "include/pith/pith.h")
        for path, pattern in (("tools/python/pyproject.toml", r'^version = "(.*)"$'),
                              ("tools/packaging/conda/meta.yaml", r'set version = "(.*)" %'),
                              ("README.md", r"^## Status: version (.*)$")):
            self.assertTrue((version + ".").startswith(found(path, pattern) + "."), path)
        self.assertIn(f"\n## [{version}]", read("CHANGELOG.md"))

    def test_soversion(self):
        soversion = found("src/api/CMakeLists.txt", r"\bSOVERSION (\d+)")
        for path, pattern in (("src/api/pith.map", r"^PITH_(\d+) \{"),
                              ("tools/python/CMakeLists.txt", r"libpith\.so\.(\d+)"),
                              ("tools/packaging/conda/meta.yaml", r"libpith\.so\.(\d+)"),
                              ("pith", r"build/packages/\*\.deb: libpith(\d+) "),
                              ("README.md", r"`libpith(\d+)`")):
            self.assertEqual(found(path, pattern), soversion, path)

    def test_recipes(self):
        """Spack's is Python, conda's YAML in Jinja. What they pass to CMake is an option."""
        spack = read("tools/packaging/spack/packages/pith/package.py")
        ast.parse(spack)
        conda = read("tools/packaging/conda/meta.yaml")
        defined = set(re.findall(r'define\w*\("(PITH_\w+)"', spack))
        defined |= set(re.findall(r"-D(PITH_\w+)=", conda))
        options = "".join(read(path) for path in ("CMakeLists.txt", "cuda/CMakeLists.txt",
                                                  "tests/CMakeLists.txt"))
        for name in sorted(defined):
            self.assertRegex(options, rf"(option|set)\({name} ")
        for needed in ("cli11", "eigen", "fmt", "openssl", "spdlog", "zstd"):
            for text in (spack, conda):
                self.assertIn(needed, text)
        try:
            import jinja2
            import yaml
        except ImportError:
            self.skipTest("conda's recipe is not read: no jinja2 or no yaml")
        words = {name: lambda *_, **__: "word" for name in ("compiler", "stdlib", "pin_subpackage")}
        recipe = yaml.safe_load(jinja2.Template(conda).render(**words))
        self.assertEqual(recipe["package"]["name"], "pith")
        for path in recipe["about"]["license_file"]:
            self.assertTrue((SOURCE / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
