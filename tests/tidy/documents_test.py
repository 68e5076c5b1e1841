#!/usr/bin/env python3
"""Tests of the checks of documents, with what a writer could hide a long sentence in."""

import unittest

import comment_checks
import document_checks
import markdown
from sources import Tree

LONG = " ".join(["word"] * 31)
SHORT = " ".join(["word"] * 30)


def found(check, files, binaries=()):
    return [(finding.path, finding.line, finding.rule)
            for finding in check(Tree(files, binaries))]


class Prose(unittest.TestCase):
    def rules(self, text):
        return [rule for _, _, rule in found(document_checks.check_prose, {"docs/a.md": text})]

    def refused(self, text, rule="sentence"):
        self.assertEqual(self.rules(text), [rule], text)

    def taken(self, text):
        self.assertEqual(self.rules(text), [], text)

    def test_a_sentence_has_at_most_thirty_words(self):
        self.taken(f"{SHORT}.\n")
        self.refused(f"{LONG}.\n")
        self.refused(f"{LONG}\n")
        self.taken(f"{SHORT}. {SHORT}! {SHORT}? (Word.) {SHORT.title()}.\n")
        self.refused(f"# {LONG}\n")
        self.refused(f"{LONG}\n====\n")

    def test_sentence_continues_over_lines(self):
        lines = "\n".join([" ".join(["word"] * 11)] * 3)
        self.refused(lines)
        self.refused(lines.replace("\n", "  \n"))
        self.refused(lines.replace("\n", "\r\n"))

    def test_no_abbreviation_or_number_ends_a_sentence(self):
        half = " ".join(["word"] * 16)
        for middle in ("e.g.", "i.e.", "e. g.", "etc.", "1.5", "v2.0", "a.b()", "...", "(why?)",
                       "x:", "x;", "`a. B`", "[a](b.md)", "(a.)", "x…"):
            with self.subTest(middle):
                self.refused(f"{half} {middle} {half}.")
        self.taken(f"{half} word etc. Then {half}.")
        self.taken(f"{half} word. ckptd {half}.")
        self.taken(f"{half} word. `ckptd` {half}.")

    def test_links_count_as_their_text(self):
        url = "https://example.org/" + "a/" * 50
        self.taken(f"{' '.join(['word'] * 28)} [two words]({url} \"{LONG}\").\n")
        self.refused(f"{' '.join(['word'] * 28)} [three of them]({url}).\n")
        self.refused(f"[{LONG}]({url})")
        self.refused(f"[{LONG}][ref]\n\n[ref]: {url}\n")
        self.refused(f"![{LONG}](a.png)")
        self.refused(f"[![{LONG}](a.png)]({url})")
        self.taken(f"[ref]: {url} \"{LONG}\"\n")

    def test_prose_is_found_in_any_block(self):
        for text in (f"- {LONG}", f"1. {LONG}", f"> {LONG}", f"> - {LONG}", f"- > {LONG}",
                     f"- a\n\n  {LONG}", f"- a\n  - b\n\n    {LONG}", f"   {LONG}",
                     f"a\n\n<p>{LONG}</p>", f"<details><summary>{LONG}</summary></details>",
                     f"**{LONG}**", f"_{LONG}_", f"[^1]: {LONG}", LONG.replace(" ", "&nbsp;"),
                     LONG.replace(" ", "\u00a0"), LONG.replace(" ", "—"),
                     f"<!-- a --> {LONG}", f"<!-- a\nb --> <!-- c --> {LONG}",
                     f"<!-- -->{LONG}<!-- -->", f"- > ```\n  > a\n  > ```\n\n  {LONG}",
                     f"1. a\n2. {LONG}", f"<!-->{LONG}", f"* > a\n\n    {LONG}",
                     f"\t\n{LONG}", f"1) {LONG}", f"+ {LONG}"):
            with self.subTest(text):
                self.refused(text)

    def test_no_table_without_its_delimiters(self):
        self.taken(f"| a | b |\n|---|---|\n| {LONG} | c |\n")
        self.taken(f"a | b\n:--|--:\n{LONG} | c\n")
        self.taken(f"> | a |\n> |---|\n> | {LONG} |\n")
        self.refused(f"| {LONG} |")
        self.refused(f"| {LONG} | b |\n|---|\n")  # one cell too many: no table
        self.refused(f"| a |\n|---|\n| b |\n{LONG}\n")
        self.refused(f"| a |\n\n|---|\n\n| {LONG} |\n")
        self.refused(f"| a |\n| - |\n| b |\n\n| {LONG} |\n")
        self.refused(f"a | {LONG}\n- | -\n")  # an item of a list
        self.refused(f"- a\n| {LONG} |\n|---|\n")  # outside of the item: its text goes on
        self.refused(f"<!-- -->| {LONG} |\n|---|\n")
        self.refused(f"| {LONG} |\n    |---|\n")

    def test_only_code_is_code(self):
        for text in (f"```\n{LONG}\n```\n", f"~~~ text\n{LONG}\n~~~\n",
                     f"````\n```\n{LONG}\n````\n",
                     f"- a\n\n  ```\n  {LONG}\n  ```\n", f"a\n\n    {LONG}\n", f"- ```\n  {LONG}\n"
                     "  ```\n", f"> ```\n> {LONG}\n> ```\n", f"- a\n\n      {LONG}\n",
                     f"<!--\n{LONG}\n-->\n", f"`{LONG}`", f"``a ` {LONG}``"):
            with self.subTest(text):
                self.taken(text)
        for text in (f"```\na\n```\n{LONG}\n", f"```\na\n```` \n{LONG}\n", f"a\n    {LONG}\n",
                     f"``` a ```\n{LONG}\n", f"- ```\n{LONG}\n", f"> ```\n{LONG}\n",
                     f"a\n    ```\n{LONG}\n", f"- a\n\n    {LONG}\n", f"~~~\n```\n~~~\n{LONG}\n",
                     f"` {LONG}"):
            with self.subTest(text):
                self.refused(text)

    def test_unclosed_blocks_are_reported(self):
        self.refused(f"```\n{LONG}\n", "unclosed")
        self.refused(f"```\n~~~\n{LONG}\n``\n", "unclosed")
        self.refused(f"<!-- {LONG}\n", "unclosed")
        self.refused(f"```\na\n``` b\n{LONG}\n", "unclosed")
        self.assertEqual(self.rules(f"- <!-- a\n{LONG}\n-->\n"), ["unclosed", "sentence"])
        self.refused(f"<!-- a --><!-- {LONG}\n", "unclosed")

    def test_a_paragraph_has_at_most_five_lines(self):
        self.taken("a\n" * 5)
        self.refused("a\n" * 6, "paragraph")
        self.refused("- a\n" + "  b\n" * 5, "paragraph")
        self.refused("- a\n" + "b\n" * 5, "paragraph")  # a lazy continuation
        self.refused("> a\n" + "b\n" * 5, "paragraph")
        self.refused("a\n" * 3 + "2. b\n" * 3, "paragraph")  # no list may begin so in a paragraph
        self.taken("- a\n" * 6)
        self.taken("a\n" * 3 + "\n" + "a\n" * 3)
        self.taken("a\n" * 3 + "# b\n" + "a\n" * 3)
        self.taken("a\n" * 3 + "- b\n" + "  a\n" * 3)

    def test_no_long_line_makes_a_paragraph_short(self):
        self.taken(f"{'a' * 9}. " * 68)
        self.refused(f"{'a' * 9}. " * 69, "paragraph")
        self.refused(f"- {'a' * 9}. " * 69, "paragraph")

    def test_generated_pages_are_exempt(self):
        check = document_checks.check_prose
        self.assertEqual(found(check, {"bench/results/save.md": LONG}), [])
        self.assertEqual(found(check, {"bench/README.md": LONG}),
                         [("bench/README.md", 1, "sentence")])
        self.assertEqual(found(check, {"docs/bench/results/save.md": LONG}),
                         [("docs/bench/results/save.md", 1, "sentence")])
        self.assertEqual(found(check, {"docs/A.MD": "a\n\n" + LONG}),
                         [("docs/A.MD", 3, "sentence")])

    def test_any_text_can_be_read(self):
        for text in ("", "\n", "`", "```", "<!--", "-->", "[", "](", "[](", "![", "[a][", "|",
                     "|-|", "> ", ">>>>", "- ", "-", "1.", "#", "# #", "===", "---", "\t",
                     "\x00 \x01",
                     "[a]:", "[a]: <", "*", "**_**", "&", "&#0;", "\\", "`` ` ``", "<a href='",
                     "> > - > ```\n> a", "- - - a", "1. - 2. - a\n      b", "a\n" + "> " * 500):
            with self.subTest(text):
                markdown.slugs(markdown.read(text))
                list(document_checks.check_prose(Tree({"docs/a.md": text})))
                list(document_checks.check_links(Tree({"docs/a.md": text})))


class Lengths(unittest.TestCase):
    def test_readmes(self):
        check = document_checks.check_readme_lengths
        for path, most in (("README.md", 150), ("a/README.md", 60), ("a/b/readme.MD", 60)):
            self.assertEqual(found(check, {path: "a\n" * most}), [])
            self.assertEqual(found(check, {path: "a\n" * (most + 1)}),
                             [(path, most + 1, "readme-length")])
            self.assertEqual(found(check, {path: "a\r" * (most + 1)}),
                             [(path, most + 1, "readme-length")])
        self.assertEqual(found(check, {"docs/a.md": "a\n" * 400}), [])


class Links(unittest.TestCase):
    OTHER = "# Why?\n## `a_b`: the *c*\n# Why?\n```\n# code\n```\n<a id=\"set\"></a>\n"
    FILES = {"docs/b.md": OTHER, "docs/x/README.md": "# Top\n", "src/c.cc": "1\n2\n",
             "a (b).md": ""}

    def rules(self, text, path="docs/a.md"):
        return [rule for _, _, rule in
                found(document_checks.check_links, {**self.FILES, path: text}, ["docs/p.png"])]

    def test_links_that_lead_somewhere(self):
        for target in ("b.md", "./b.md", "../src/c.cc", "../src", "../src/", "x", "../docs/b.md",
                       "b.md#why", "b.md#why-1", "b.md#a_b-the-c", "b.md#set", "x/#top", "x#top",
                       "p.png", "#here", "/docs/b.md", "../src/c.cc#L2", "../src/c.cc#L1-L2",
                       "https://example.org/gone.md#gone", "mailto:a@b.c", "<b.md>", "b%2Emd",
                       "<../a (b).md>", "../a%20(b).md", "b.md \"a title\"", "b.md?plain=1", ".."):
            with self.subTest(target):
                self.assertEqual(self.rules(f"# Here\n[a]({target})\n"), [])

    def test_links_that_lead_nowhere(self):
        for target in ("gone.md", "B.md", "../b.md", "../../docs/b.md", "b.md/", "b", "/b.md", "",
                       "../src/gone.cc", "x/gone", "<gone.md>", "gone.md \"title\"", "b.md.",
                       "p.PNG",
                       "docs/b.md", "gone.md?plain=1", "gone.md#why"):
            with self.subTest(target):
                self.assertEqual(self.rules(f"[a]({target})\n"), ["dead-link"])

    def test_anchors_that_lead_nowhere(self):
        for target in ("b.md#gone", "b.md#Why", "b.md#why-2", "b.md#code", "b.md#", "#gone", "#",
                       "../src/c.cc#L3", "../src/c.cc#L1-L3", "../src/c.cc#main", "../src#a",
                       "x#gone", "p.png#a", "b.md#L1"):
            with self.subTest(target):
                self.assertEqual(self.rules(f"[a]({target})\n"), ["dead-anchor"])

    def test_links_are_found_in_any_block(self):
        for text in ("![a](gone.png)", "[![a](gone.png)](b.md)", "[![a](p.png)](gone.md)",
                     "| a |\n|---|\n| [a](gone.md) |", "> [a](gone.md)", "- [a](gone.md)",
                     "# [a](gone.md)", "[a\nb](gone.md)", "[a][r]\n\n[r]: gone.md", "[r]: gone.md",
                     "[r]: <gone.md> 'title'", "<a href=\"gone.md\">a</a>", "<img src='gone.png'>",
                     "**[a](gone.md)**", "[a [b] c](gone.md)", "[`a`](gone.md)", "[a](\ngone.md)",
                     "<!-- a --> [a](gone.md)", "[a][gone]", "[a]( gone.md )"):
            with self.subTest(text):
                self.assertEqual(self.rules(text), ["dead-link"])
        self.assertEqual(self.rules("[a](gone.md)", "bench/results/a.md"), ["dead-link"])

    def test_code_and_comments_have_no_links(self):
        for text in ("`[a](gone.md)`", "```\n[a](gone.md)\n```", "<!-- [a](gone.md) -->",
                     "    [a](gone.md)", "[1, 2]", "a <!-- [a](gone.md)\n b --> c"):
            with self.subTest(text):
                self.assertEqual(self.rules(text), [])

    def test_a_finding_names_the_line(self):
        self.assertEqual(found(document_checks.check_links, {"a.md": "a\n\nb\nc [d](gone.md)\n"}),
                         [("a.md", 4, "dead-link")])


class Names(unittest.TestCase):
    def test_documents_that_are_named_are_there(self):
        check = document_checks.check_named_documents
        name = "docs/" + "gone.md"
        for line in (f"// Speed: {name}.", f"`{name}`", f"({name})"):
            self.assertEqual(found(check, {"a.cc": f"int a;\n{line}\n"}),
                             [("a.cc", 2, "named-document")])
            self.assertEqual(found(check, {"a.cc": line, name: ""}), [])
        for line in (f"https://example.org/{name}", f"other/{name}", f"{name}5", f"../{name}"):
            self.assertEqual(found(check, {"a.cc": line}), [])


class Comments(unittest.TestCase):
    def lines(self, path, text):
        return [finding.line for finding in comment_checks.riddles(Tree({path: text}))]

    def test_comments_that_begin_with_a_riddle(self):
        for path, text, wanted in (
                ("a.cc", "// What is it\nint a;  // Of b\n", [1, 2]),
                ("a.h", "/* Nobody\n knows */\n", [1]),
                ("a.cu", "//Those who\n", [1]),
                ("a.cc", "// -- What\n", [1]),
                ("a.py", "\"\"\"What a module.\"\"\"\n# Who\nx = 1  # As\n", [1, 2, 3]),
                ("a.py", "def f():\n    \"\"\"As g.\"\"\"\n", [2]),
                ("a.sh", "set -e # What\n", [1]), ("dev", "# As\n", [1]),
                ("CMakeLists.txt", "# Of it\n", [1]), ("a.fbs", "// Who\n", [1])):
            with self.subTest(text):
                self.assertEqual(self.lines(path, text), wanted)

    def test_other_comments(self):
        for path, text in (("a.cc", "// A long\n// What follows is the same comment.\n"),
                           ("a.cc", "// Offsets, whatever\n"), ("a.cc", "// what\n"),
                           ("a.cc", "const char* a = \"// What\";\n"), ("a.md", "# What\n"),
                           ("a.py", "x = \"What\"\nf(\"As\")\n"), ("a.sh", "a=\"#Who\"\n")):
            with self.subTest(text):
                self.assertEqual(self.lines(path, text), [])


if __name__ == "__main__":
    unittest.main()
