#!/usr/bin/env python3
"""Tests of the checks of classes and headers: each with planted violations and their twins."""

import unittest

import class_checks
from functions import UnbalancedBraces, find_types, statements_of
from sources import Tree


def rules_of(check, files):
    return [(finding.path, finding.rule) for finding in check(Tree(files))]


def members(count, end=""):
    return "".join(f"  int member{i}{end} = 0;\n" for i in range(count))


class Types(unittest.TestCase):
    def names(self, text):
        return [kind.name for kind in find_types(text)]

    def test_names_have_their_scopes(self):
        self.assertEqual(self.names("namespace a::b {\nclass C : public D<E> {\n  struct F {};\n"
                                    "};\n}\nnamespace g {\nenum class H : int { kA };\n}\n"),
                         ["a::b::C", "a::b::C::F", "g::H"])
        self.assertEqual(self.names("struct A::Impl final : B {\n};\n"), ["A::Impl"])
        self.assertEqual(self.names("template <typename T>\nstruct hash<a::B<T>> {};\n"),
                         ["hash<a::B<T>>"])
        self.assertEqual(self.names('extern "C" {\ntypedef struct a { int b; } a;\n}\n'), ["a"])

    def test_declarations_and_functions_are_no_types(self):
        self.assertEqual(self.names("class A;\nstruct B* f(struct C c) {\n  struct D {};\n}\n"
                                    "struct B b = {1};\nenum E : int;\n"), [])

    def test_only_unnamed_namespaces_hide_a_type(self):
        kinds = find_types("namespace a {\nnamespace {\nstruct B {};\n}\nstruct C {};\n}\n")
        self.assertEqual([(kind.name, kind.is_shared) for kind in kinds],
                         [("a::B", False), ("a::C", True)])

    def test_line_and_body(self):
        (kind,) = find_types("// x\n\nstruct A {\n  int b = 0;\n};\n")
        self.assertEqual((kind.line, kind.body.strip()), (3, "int b = 0;"))

    def test_braces_that_do_not_match_are_an_error(self):
        for text in ("struct A {\n", "struct A {};\n}\n"):
            with self.assertRaises(UnbalancedBraces):
                find_types(text)

    def test_statements_keep_their_blocks_short(self):
        self.assertEqual(list(statements_of("int a{1};\nint f() const {\n  g();\n}\nint\n b;")),
                         ["int a{}", "int f() const {}", "int b"])


class ClassMembers(unittest.TestCase):
    def findings(self, body, head="class A"):
        return rules_of(class_checks.check_class_members, {"a/b.h": f"{head} {{\n{body}}};\n"})

    def test_a_class_with_behaviour_has_few_members(self):
        found = [("a/b.h", "class-members")]
        self.assertEqual(self.findings("  void f();\n" + members(26, "_")), found)
        self.assertEqual(self.findings("  void f();\n" + members(25, "_")), [])
        self.assertEqual(self.findings("  void f() { g(); }\n" + members(26), "struct A"), found)

    def test_plain_values_may_be_large(self):
        self.assertEqual(self.findings(members(40)), [])
        self.assertEqual(self.findings("  int sum() const { return 1; }\n  explicit A(int);\n"
                                       "  A();\n"
                                       "  bool operator==(const A&) const = default;\n"
                                       + members(40), "struct A"), [])

    def test_private_members_are_behaviour(self):
        self.assertEqual(self.findings("  int sum() const;\n" + members(26, "_")),
                         [("a/b.h", "class-members")])

    def test_only_members_that_change_count(self):
        body = members(25, "_") + "  void f();\n"
        for line in ("const int c_ = 0;", "Disk& disk_;", "static int s_;", "friend class B;",
                     "using C = int;", "int* const p_;", "std::map<int, const int> f() const;",
                     "struct B {\n    int b = 0;\n  };"):
            self.assertEqual(self.findings(f"{body}  {line}\n"), [], line)
        for line in ("const int* p_ = nullptr;", "std::function<void(int)> f_;", "B b_{1, 2};"):
            self.assertEqual(self.findings(f"{body}  {line}\n"), [("a/b.h", "class-members")],
                             line)


class Lengths(unittest.TestCase):
    def test_headers(self):
        check = class_checks.check_header_lengths
        self.assertEqual(rules_of(check, {"a/b.h": "\n" * 300}), [])
        self.assertEqual(rules_of(check, {"a/b.h": "\n" * 301}), [("a/b.h", "header-length")])
        self.assertEqual(rules_of(check, {"client/include/ckpt/a.h": "\n" * 900}), [])

    def test_daemon(self):
        check = class_checks.check_header_lengths
        self.assertEqual(rules_of(check, {"ckptd/daemon.cc": "\n" * 300}), [])
        self.assertEqual(rules_of(check, {"ckptd/daemon.cc": "\n" * 301}),
                         [("ckptd/daemon.cc", "daemon-length")])

    def test_usual_functions(self):
        def function(lines):
            return "void f() {\n" + "  g();\n" * (lines - 2) + "}\n"

        check = class_checks.check_usual_function_length
        few = function(3) * 95 + function(50) * 5
        self.assertEqual(rules_of(check, {"ckptd/a.cc": few}), [])
        self.assertEqual(rules_of(check, {"ckptd/a.cc": few + function(31) * 2}),
                         [("CMakeLists.txt", "usual-function-length")])
        self.assertEqual(rules_of(check, {"tests/a.cc": function(50)}), [])


class DefinedOnce(unittest.TestCase):
    def findings(self, first, second):
        return rules_of(class_checks.check_types_are_defined_once,
                        {"a/b.h": first, "a/c.cc": second})

    def test_a_type_has_one_definition(self):
        text = "namespace n {\nstruct A {};\n}\n"
        self.assertEqual(self.findings(text, text), [("a/c.cc", "type-defined-twice")])
        self.assertEqual(self.findings(text, text.replace(" {};", ";")), [])
        self.assertEqual(self.findings(text, text.replace("namespace n", "namespace m")), [])
        self.assertEqual(self.findings(text, "namespace n {\nnamespace {\nstruct A {};\n}\n}\n"),
                         [])

    def test_alternatives_in_one_file_are_no_clash(self):
        self.assertEqual(self.findings("#if X\nstruct A {};\n#else\nstruct A { int a; };\n#endif\n",
                                       ""), [])


if __name__ == "__main__":
    unittest.main()
