"""Documents: lengths of READMEs, paragraphs and sentences, and links that lead somewhere."""

import posixpath
import re
from urllib.parse import unquote

import markdown
from sources import Finding

README_LINES_MAX = 150
FOLDER_README_LINES_MAX = 60
PARAGRAPH_LINES_MAX = 5
PARAGRAPH_CHARACTERS_MAX = 750  # five lines of 150 columns, however they are broken
SENTENCE_WORDS_MAX = 30
# Pages that programs write: bench/tables.py --check fails for any other page there.
GENERATED = ("bench/results/",)

_OUTSIDE = re.compile(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:|//)")
_LINES = re.compile(r"^L(\d+)(?:C\d+)?(?:-L(\d+)(?:C\d+)?)?$")
_NAMED = re.compile(r"(?<![\w./-])(?:ckptd|client|trainer|kernels|formats|tests|bench|docs)/"
                    r"[\w./-]*\.md\b")


def _documents(tree):
    """(path, the document) of every Markdown file."""
    for path in sorted(tree.files):
        if path.lower().endswith(".md"):
            yield path, markdown.read(tree.files[path])


def check_readme_lengths(tree):
    for path in sorted(tree.files):
        if posixpath.basename(path).lower() != "readme.md":
            continue
        lines = len(tree.files[path].splitlines())
        most = FOLDER_README_LINES_MAX if "/" in path else README_LINES_MAX
        if lines > most:
            yield Finding(path, lines, "readme-length",
                          f"{lines} lines (at most {most}); move the rest to docs/")


def check_prose(tree):
    for path, document in _documents(tree):
        if path.startswith(GENERATED):
            continue
        for line, what in document.unclosed:
            yield Finding(path, line, "unclosed", f"{what} never ends, and hides the rest")
        for block in document.blocks:
            yield from _check_block(path, block)


def _check_block(path, block):
    if not block.heading:
        characters = len(" ".join(markdown.plain(block.text).split()))
        if len(block.lines) > PARAGRAPH_LINES_MAX:
            yield Finding(path, block.line, "paragraph",
                          f"{len(block.lines)} lines (at most {PARAGRAPH_LINES_MAX})")
        elif characters > PARAGRAPH_CHARACTERS_MAX:
            yield Finding(path, block.line, "paragraph",
                          f"{characters} characters (at most {PARAGRAPH_CHARACTERS_MAX})")
    for sentence in markdown.sentences(block.text):
        if len(sentence) > SENTENCE_WORDS_MAX:
            yield Finding(path, block.line, "sentence",
                          f"{len(sentence)} words (at most {SENTENCE_WORDS_MAX}): "
                          f"{' '.join(sentence[:8])} ...")


def check_links(tree):
    folders = {""}
    for path in tree.paths("") + sorted(tree.binaries):
        while path := posixpath.dirname(path):
            folders.add(path)
    anchors = {path: markdown.slugs(document) for path, document in _documents(tree)}
    for path, document in _documents(tree):
        for line, target, name in markdown.links(document):
            if target is None:
                yield Finding(path, line, "dead-link", f"[{name}] is defined nowhere")
            elif reason := _dead(tree, folders, anchors, path, target):
                yield Finding(path, line, *reason)


def _dead(tree, folders, anchors, path, target):
    """(rule, message) if a link of this document leads nowhere."""
    if _OUTSIDE.match(target):
        return None
    place, _, anchor = target.partition("#")
    place = unquote(place.split("?")[0])
    if place.startswith("/"):
        place = place.lstrip("/") or "."
    elif place:
        place = posixpath.join(posixpath.dirname(path), place)
    folder = place.endswith("/")
    place = posixpath.normpath(place) if place else path
    place = "" if place == "." else place
    is_file = place in tree.files or place in tree.binaries
    if place not in folders and (folder or not is_file):
        return "dead-link", f"{target or 'an empty link'}: there is no {place}"
    if target == "":
        return "dead-link", "an empty link"
    if "#" not in target:
        return None
    if place in folders:
        place = posixpath.join(place, "README.md")
    if unquote(anchor) in anchors.get(place, ()):
        return None
    if (lines := _LINES.match(anchor)) and place in tree.files and place not in anchors:
        if max(int(lines[1]), int(lines[2] or 0)) <= len(tree.files[place].splitlines()):
            return None
    return "dead-anchor", f"{target}: {place} has no such heading"


def check_named_documents(tree):
    """Comments, messages and documents name documents that are there."""
    for path, text in tree.files.items():
        if path == "LICENSE" or path.startswith(("tests/tidy/", "tests/docs/")):
            continue  # trees that tests plant
        for number, line in enumerate(text.split("\n"), 1):
            for found in _NAMED.finditer(line):
                if found.group() not in tree.files:
                    yield Finding(path, number, "named-document",
                                  f"there is no {found.group()}")
