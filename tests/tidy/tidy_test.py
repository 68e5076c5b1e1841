#!/usr/bin/env python3
"""Tests of the checks: each has a planted violation that it must find, and a twin it must not."""

import unittest

import include_graph
import layout_checks
import project_checks
from functions import UnbalancedBraces, find_functions
from sources import Tree, code_only


def rules_of(check, files):
    return [(finding.path, finding.rule) for finding in check(Tree(files))]


class Includes(unittest.TestCase):
    def findings(self, path, line, extra=()):
        files = {path: line + "\n", **{name: "" for name in extra}}
        return rules_of(include_graph.check_includes, files)

    def refused(self, path, line, extra=()):
        self.assertEqual(self.findings(path, line, extra), [(path, "include-graph")])

    def taken(self, path, line, extra=()):
        self.assertEqual(self.findings(path, line, extra), [])

    def test_formats_stand_alone(self):
        self.refused("formats/unit.cc", '#include "ckptd/limits.h"', ["ckptd/limits.h"])
        self.refused("formats/base/x.h", '#include "formats/unit.h"', ["formats/unit.h"])
        self.taken("formats/unit.cc", '#include "formats/base/x.h"', ["formats/base/x.h"])

    def test_kernels_see_only_the_base(self):
        self.refused("kernels/gemm.h", '#include "formats/unit.h"', ["formats/unit.h"])
        self.taken("kernels/gemm.h", '#include "formats/base/x.h"', ["formats/base/x.h"])

    def test_daemon_never_sees_client_or_trainer(self):
        for target in ("client/x.h", "trainer/x.h"):
            self.refused("ckptd/daemon.cc", f'#include "{target}"', [target])
        self.refused("ckptd/main.cc", "#include <ckpt/ckpt.h>", ["client/include/ckpt/ckpt.h"])

    def test_stages_inside_the_daemon(self):
        self.refused("ckptd/ingest/i.cc", '#include "ckptd/io/disk.h"', ["ckptd/io/disk.h"])
        self.refused("ckptd/io/a.cc", '#include "ckptd/staging/s.h"', ["ckptd/staging/s.h"])
        self.refused("ckptd/daemon.cc", '#include "ckptd/server/s.h"', ["ckptd/server/s.h"])
        self.taken("ckptd/persist/p.cc", '#include "ckptd/io/disk.h"', ["ckptd/io/disk.h"])
        self.taken("ckptd/daemon_open.cc", '#include "ckptd/ingest/i.h"', ["ckptd/ingest/i.h"])

    def test_client_only_at_the_trainers_seam(self):
        header = ["client/include/ckpt/client.hpp"]
        self.refused("trainer/model/m.cc", "#include <ckpt/client.hpp>", header)
        self.refused("trainer/checkpoint/c.cc", '#include "client/session.h"',
                     ["client/session.h"])
        self.taken("trainer/checkpoint/c.cc", "#include <ckpt/client.hpp>", header)
        self.taken("trainer/elastic/e.cc", "#include <ckpt/client.hpp>", header)

    def test_public_headers_stand_alone(self):
        self.refused("client/include/ckpt/ckpt.h", '#include "formats/unit.h"',
                     ["formats/unit.h"])

    def test_placement_is_pure(self):
        self.refused("trainer/placement/p.cc", '#include "trainer/comm/comm.h"',
                     ["trainer/comm/comm.h"])

    def test_libraries_have_one_place(self):
        self.refused("ckptd/persist/p.cc", "#include <liburing.h>")
        self.refused("ckptd/daemon.cc", "#include <asio.hpp>")
        self.refused("trainer/model/m.cc", "#include <cuda_runtime.h>")
        self.taken("ckptd/io/u.cc", "#include <liburing.h>")
        self.taken("ckptd/persist/p.cc", "#include <vector>")

    def test_paths_are_given_from_the_root_and_exist(self):
        self.assertEqual(self.findings("ckptd/io/a.cc", '#include "disk.h"'),
                         [("ckptd/io/a.cc", "include-path")])
        self.assertEqual(self.findings("ckptd/io/a.cc", '#include "ckptd/io/gone.h"'),
                         [("ckptd/io/a.cc", "include-path")])

    def test_a_new_folder_needs_a_rule(self):
        self.refused("misc/x.cc", "#include <vector>")

    def test_cycles(self):
        cycle = {"formats/a.h": '#include "formats/b.h"\n', "formats/b.h": "#include <vector>\n"}
        self.assertEqual(rules_of(include_graph.check_cycles, cycle), [])
        cycle["formats/b.h"] += '#include "formats/a.h"\n'
        self.assertEqual([rule for _, rule in rules_of(include_graph.check_cycles, cycle)],
                         ["include-cycle"])

    def test_folder_cycles_of_the_trainer(self):
        """Two folders that need each other are found, though no file includes itself."""
        files = {"trainer/model/m.h": '#include "trainer/parallel/store.h"\n',
                 "trainer/parallel/store.h": "", "trainer/parallel/grad.h": "",
                 "trainer/loop.h": '#include "trainer/model/m.h"\n',
                 "trainer/elastic/run.h": '#include "trainer/loop.h"\n',
                 "trainer/main.cc": '#include "trainer/elastic/run.h"\n'}
        check = include_graph.check_folder_cycles
        self.assertEqual(rules_of(check, files), [])
        files["trainer/parallel/grad.h"] += '#include "trainer/model/m.h"\n'
        self.assertEqual(rules_of(include_graph.check_cycles, files), [])
        self.assertEqual(rules_of(check, files), [("trainer/parallel/grad.h", "folder-cycle")])
        files["trainer/parallel/grad.h"] = ""
        files["trainer/model/n.h"] = '#include "trainer/elastic/run.h"\n'
        self.assertEqual([rule for _, rule in rules_of(check, files)], ["folder-cycle"])

    def test_the_stages_table_itself_has_no_cycle(self):
        rules = {name: {r for r in targets if r in include_graph.RULES and r != name}
                 for name, targets in include_graph.RULES.items()
                 if name not in ("trainer/",)}
        while ready := [name for name, targets in rules.items() if not targets & rules.keys()]:
            for name in ready:
                del rules[name]
        self.assertEqual(list(rules), [])


class Layout(unittest.TestCase):
    def assert_rule(self, check, path, text, rule):
        self.assertEqual(rules_of(check, {path: text}), [(path, rule)] if rule else [])

    def test_lines(self):
        files = layout_checks.check_files
        self.assert_rule(files, "a.cc", "x" * 100 + "\n", None)
        self.assert_rule(files, "a.cc", "x" * 101 + "\n", "columns")
        self.assert_rule(files, "a.cc", "\tx\n", "tab")
        self.assert_rule(files, "a.cc", "x \n", "trailing-space")
        self.assert_rule(files, "a.cc", "x", "final-newline")
        self.assert_rule(files, "a.cc", "x\n" * 400, None)
        self.assert_rule(files, "a.cc", "x\n" * 401, "file-length")

    def test_words(self):
        words = layout_checks.check_words
        self.assert_rule(words, "a.cc", "// TO" + "DO: later\n", "word")
        self.assert_rule(words, "README.md", "see /ho" + "me/me/notes\n", "word")
        self.assert_rule(words, "a.cc", "// a method of work/life\n", None)

    def test_header_guards(self):
        headers = layout_checks.check_headers
        guard = "#ifndef CKPT_X_H\n#define CKPT_X_H\n#endif\n"
        self.assert_rule(headers, "formats/a.h", "int x;\n", "pragma-once")
        self.assert_rule(headers, "formats/a.h", "// why\n#pragma once\n", None)
        self.assert_rule(headers, "formats/a.h", guard, "pragma-once")
        self.assert_rule(headers, "client/include/ckpt/a.h", guard, None)

    def test_function_lengths(self):
        lengths = layout_checks.check_function_lengths
        self.assert_rule(lengths, "a.cc", "void f() {\n" + "g();\n" * 58 + "}\n", None)
        self.assert_rule(lengths, "a.cc", "void f() {\n" + "g();\n" * 59 + "}\n",
                         "function-length")
        self.assert_rule(lengths, "a.py", "def f():\n" + "    g()\n" * 60, "function-length")
        self.assert_rule(lengths, "a.cc", "void f() {\n", "function-length")
        self.assert_rule(lengths, "k.cu", "void f() {\n" + "g();\n" * 99 + "}\n", None)


class Functions(unittest.TestCase):
    def spans(self, text):
        return [(f.first_line, f.last_line) for f in find_functions(text)]

    def test_finds_functions(self):
        self.assertEqual(self.spans("int f(int a) {\n  return a;\n}\n"), [(1, 3)])
        self.assertEqual(self.spans("namespace a {\nstruct B {\n  void c() {\n  }\n};\n}\n"),
                         [(3, 4)])
        self.assertEqual(self.spans("Foo::Foo() : a_{1}, b_(2) {\n  x();\n}\n"), [(1, 3)])
        self.assertEqual(self.spans("template <typename T>\nauto f(T t) -> int {\n}\n"), [(1, 3)])
        self.assertEqual(self.spans("TEST(A, B) {\n  auto l = [] {\n  };\n}\n"), [(1, 4)])
        self.assertEqual(self.spans('extern "C" {\nint f(void) {\n}\n}\n'), [(2, 3)])
        self.assertEqual(self.spans("bool operator==(const A& b) const {\n}\n"), [(1, 2)])

    def test_ignores_braces_of_other_code(self):
        self.assertEqual(self.spans("struct A {\n  int b{0};\n  int c = 1;\n};\n"), [])
        self.assertEqual(self.spans("enum class A : int {\n  kB,\n};\n"), [])
        self.assertEqual(self.spans("const int a[] = {\n  1,\n};\n"), [])
        self.assertEqual(self.spans("class [[nodiscard]] A {\n public:\n  A();\n};\n"), [])
        self.assertEqual(self.spans("struct alignas(64) A {\n};\n"), [])

    def test_ignores_braces_in_text(self):
        self.assertEqual(self.spans('void f() {\n  g("}", \'{\');  // }\n}\n'), [(1, 3)])
        self.assertEqual(self.spans('void f() {\n  g(R"x(}})x");\n}\n'), [(1, 3)])
        self.assertEqual(self.spans("#define A(x) \\\n  { x\nint f() {\n}\n"), [(3, 4)])
        self.assertEqual(self.spans("int f() {\n  return 1'000'000 + '}';\n}\n"), [(1, 3)])

    def test_unbalanced_braces_are_an_error(self):
        for text in ("void f() {", "}", "namespace a {\n"):
            with self.assertRaises(UnbalancedBraces):
                find_functions(text)

    def test_blanking_keeps_every_line(self):
        text = 'int a; // "x\n/* b\n c */ char d = \'"\'; const char* e = "f\\"\\\n";\n'
        self.assertEqual(code_only(text).count("\n"), text.count("\n"))
        self.assertNotIn("b", code_only(text))


class Project(unittest.TestCase):
    def test_assertions(self):
        check = project_checks.check_assertions
        path = "tests/a_test.cc"
        for body, rule in (("EXPECT_EQ(1, f());", None), ("expect_same(a, b);", None),
                           ("f();", "assertion"), ("// EXPECT_EQ(1, 1)\nf();", "assertion")):
            files = {path: "TEST(A, B) {\n" + body + "\n}\n"}
            self.assertEqual(rules_of(check, files), [(path, rule)] if rule else [], body)
        helper = {path: '#include "tests/help.h"\nTEST(A, B) {\n  h.wait(1);\n}\n',
                  "tests/help.h": "struct H {\n  void wait(int a) {\n    f(a);\n  }\n};\n"}
        self.assertEqual(rules_of(check, helper), [(path, "assertion")])
        helper["tests/help.h"] = helper["tests/help.h"].replace("f(a)", "EXPECT_TRUE(f(a))")
        self.assertEqual(rules_of(check, helper), [])
        off = {path: "TEST(A, DIS" + "ABLED_B) {\n  EXPECT_TRUE(f());\n}\n"}
        self.assertEqual(rules_of(check, off), [(path, "disabled-test")])
        self.assertEqual(rules_of(check, {"tests/c_test.c": "int main(void) { return 0; }\n"}),
                         [("tests/c_test.c", "assertion")])

    def test_console(self):
        check = project_checks.check_console
        for path, body, rule in (("client/ctl/a.cc", 'fmt::print(stderr, "x");', "console"),
                                 ("trainer/a.cc", 'std::cout << "x";', "console"),
                                 ("trainer/a.cc", '// fmt::print("x")', None),
                                 ("ckptd/a.cc", 'ckpt::base::print_stderr("x");', None),
                                 ("tests/a.cc", 'fmt::print("x");', None)):
            self.assertEqual(rules_of(check, {path: body}), [(path, rule)] if rule else [], body)

    def test_signals(self):
        check = project_checks.check_signals
        for path, body, rule in (("tests/a_test.cc", "::kill(daemon.pid(), SIGHUP);", "signal"),
                                 ("tests/support/signals.h", "::kill(pid, number);", None),
                                 ("tests/a_test.cc", "void Kills::kill(Victim victim) {}", None),
                                 ("trainer/a.cc", "::kill(pid_, number);", None)):
            self.assertEqual(rules_of(check, {path: body}), [(path, rule)] if rule else [], body)

    def test_listed_invariants_are_asserted_and_broken(self):
        check = project_checks.check_invariants
        page = project_checks.INVARIANTS
        files = {page: "| A is B | `not B` | `Asserts` |\n",
                 "ckptd/a.cc": 'CKPT_ASSERT_MSG(a, "not B");',
                 "tests/a_test.cc": 'TEST_F(Asserts, Breaks) {\n  EXPECT_DEATH(a(), "not B");\n}'}
        self.assertEqual(rules_of(check, files), [])
        for path in ("ckptd/a.cc", "tests/a_test.cc"):
            self.assertEqual(rules_of(check, {**files, path: ""}), [(page, "invariant")], path)

    def test_unused_names(self):
        check = project_checks.check_unused_names
        for body, rule in (("using ckpt::Result;", "unused-name"),
                           ("using ckpt::Result;\nResult<int> f();", None),
                           ("using ckpt::Result;\n// Result\n", "unused-name"),
                           ("using Result = ckpt::Result<int>;", None),
                           ("namespace wire = ckpt::wire;", "unused-name"),
                           ("namespace wire = ckpt::wire;\nwire::Hello hello;", None),
                           ("using namespace ckpt::literals;", None)):
            self.assertEqual(rules_of(check, {"a/b.cc": body}),
                             [("a/b.cc", rule)] if rule else [], body)

    def test_sources_are_built(self):
        check = project_checks.check_sources_are_built
        files = {"a/b.cc": "", "a/CMakeLists.txt": "add_library(b c.cc)\n", "a/c.cc": ""}
        self.assertEqual(rules_of(check, files), [("a/b.cc", "not-built")])
        files["a/CMakeLists.txt"] += "add_library(b b.cc)\n"
        self.assertEqual(rules_of(check, files), [])
        self.assertEqual(rules_of(check, {"CMakeLists.txt": "x(a/b.cc)", "a/b.cc": ""}), [])
        self.assertEqual(rules_of(check, {"b/CMakeLists.txt": "x(../a/b.cc)", "a/b.cc": ""}), [])
        self.assertEqual(rules_of(check, {"b/CMakeLists.txt": "x(${PROJECT_SOURCE_DIR}/a/b.cc)",
                                          "a/b.cc": ""}), [])
        self.assertEqual(rules_of(check, {"CMakeLists.txt": "x(a/bb.cc)", "a/b.cc": ""}),
                         [("a/b.cc", "not-built")])

    def test_documents(self):
        files = {"README.md": "", "LICENSE": "", "a/x.cc": ""}
        check = project_checks.check_documents
        self.assertEqual(rules_of(check, files), [("a", "readme")])
        self.assertEqual(rules_of(check, {**files, "a/README.md": ""}), [])
        self.assertEqual(rules_of(check, {"README.md": ""}), [("LICENSE", "readme")])


if __name__ == "__main__":
    unittest.main()
