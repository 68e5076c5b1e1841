#!/usr/bin/env python3
"""Tests of the check of test names: planted violations, and names that it must accept."""

import unittest

import name_checks
from sources import Tree

EIGHT = "RestartedDaemonKeepsEveryCommitOfTheRun"  # eight words
NINE = "RestartedDaemonKeepsEveryDurableCommitOfTheRun"  # nine words


class Words(unittest.TestCase):
    def words(self, name, *expected):
        self.assertEqual(name_checks.words_of(name), list(expected))

    def test_each_capital_begins_a_word(self):
        self.words("EvictsOldSlab", "Evicts", "Old", "Slab")
        self.assertEqual(len(name_checks.words_of(EIGHT)), 8)
        self.assertEqual(len(name_checks.words_of(NINE)), 9)

    def test_run_of_capitals_is_one_word(self):
        self.words("ReportsIO", "Reports", "IO")
        self.words("IOErrorFailsSnapshot", "IO", "Error", "Fails", "Snapshot")
        self.words("ASlabIsFree", "A", "Slab", "Is", "Free")

    def test_number_is_no_word_of_its_own_after_letters(self):
        self.words("Fp8AndBF16RoundTrip", "Fp8", "And", "BF16", "Round", "Trip")
        self.words("StepsOf_16_Ranks", "Steps", "Of", "16", "Ranks")

    def test_small_letters_at_the_beginning_are_a_word(self):
        self.words("mmapFails", "mmap", "Fails")


class TestNames(unittest.TestCase):
    def findings(self, text, path="tests/a_test.cc"):
        return [(finding.line, finding.rule)
                for finding in name_checks.check_test_names(Tree({path: text}))]

    def refused(self, name):
        self.assertEqual(self.findings(f"TEST(Suite, {name}) {{}}\n"), [(1, "test-name")], name)

    def taken(self, name):
        self.assertEqual(self.findings(f"TEST(Suite, {name}) {{}}\n"), [], name)

    def test_at_most_eight_words(self):
        self.taken(EIGHT)
        self.refused(NINE)

    def test_openers(self):
        for opener in name_checks.OPENERS:
            self.refused(opener + "IsDurable")
        for name in ("AssertsOrder", "OffsetIsKept", "WhoseLimit", "NamesWhatIsWrong", "KeepsAs"):
            self.taken(name)

    def test_every_kind_of_test(self):
        for macro in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P"):
            self.assertEqual(self.findings(f"{macro}(Suite, {NINE}) {{}}\n"), [(1, "test-name")])
        self.assertEqual(self.findings(f"TYPED_TEST_SUITE(Suite, {NINE});\n"), [])

    def test_line_of_a_name_on_a_line_of_its_own(self):
        self.assertEqual(self.findings(f"\nTEST_F(Suite,\n       {NINE}) {{}}\n"),
                         [(3, "test-name")])

    def test_comments_literals_and_sources_are_no_tests(self):
        self.assertEqual(self.findings(f"// TEST(Suite, {NINE})\n/*\nTEST(Suite, {NINE})\n*/\n"),
                         [])
        self.assertEqual(self.findings(f'auto a = R"(\nTEST(Suite, {NINE})\n)";\n'), [])
        self.assertEqual(self.findings(f"TEST(Suite, {NINE}) {{}}\n", "ckptd/a.cc"), [])

    def test_message_names_test_words_and_rule(self):
        def message(name):
            files = {"tests/a_test.cc": f"\nTEST(A, {name}) {{}}\n"}
            return [str(finding) for finding in name_checks.check_test_names(Tree(files))]

        rule = "say the behaviour in at most 8 words, and begin with its subject or verb"
        self.assertEqual(message(NINE),
                         [f"tests/a_test.cc:2: test-name: A.{NINE}: 9 words; {rule}"])
        self.assertEqual(message("WhatIsDurable"),
                         ["tests/a_test.cc:2: test-name: A.WhatIsDurable: 3 words, begins with "
                          f"\"What\"; {rule}"])


if __name__ == "__main__":
    unittest.main()
