#!/usr/bin/env python3
"""Checks the project's own rules over a source tree: python3 tests/tidy/tidy.py [ROOT]

Exit code 0: all hold; 1: the findings are on stdout, one a line.
"""

import sys

from class_checks import (check_class_members, check_header_lengths, check_types_are_defined_once,
                          check_usual_function_length)
from comment_checks import check_comments
from document_checks import (check_links, check_named_documents, check_prose,
                             check_readme_lengths)
from include_graph import check_cycles, check_folder_cycles, check_includes
from layout_checks import check_files, check_function_lengths, check_headers, check_words
from name_checks import check_test_names
from project_checks import (check_assertions, check_console, check_documents, check_invariants,
                            check_signals, check_sources_are_built, check_unused_names)
from sources import Tree

CHECKS = (check_includes, check_cycles, check_folder_cycles, check_files, check_words,
          check_headers, check_function_lengths, check_assertions, check_console, check_invariants,
          check_signals, check_sources_are_built, check_unused_names, check_documents,
          check_readme_lengths, check_prose, check_links, check_named_documents,
          check_comments, check_class_members, check_header_lengths,
          check_types_are_defined_once, check_usual_function_length, check_test_names)


def run_checks(tree):
    return [finding for check in CHECKS for finding in check(tree)]


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else "."
    tree = Tree.load(root)
    if not tree.paths((".cc",)):
        print(f"{root}: no sources here", file=sys.stderr)
        return 1
    findings = run_checks(tree)
    for finding in findings:
        print(finding)
    print(f"{len(tree.files)} files, {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
