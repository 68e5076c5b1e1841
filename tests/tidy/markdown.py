"""Markdown as GitHub renders it: paragraphs, headings and links, without code and tables.

The rule where Markdown is ambiguous: text that a reader may see is prose. So only code, tables
with a delimiter row, HTML comments and link definitions are left out."""

import functools
import html
import re
from dataclasses import dataclass, field

_FENCE = re.compile(r"^(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r"^#{1,6}(?:\s+(.*?))?(?:\s+#+)?\s*$")
_RULER = re.compile(r"^(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$")
_UNDERLINE = re.compile(r"^(?:=+|-+)\s*$")
_QUOTE = re.compile(r"^ {0,3}> ?")
_ITEM = re.compile(r"^(?P<marker>[-*+]|(?P<number>\d{1,9})[.)])(?P<space>\s+|$)(?P<rest>.*)$")
_DELIMITERS = re.compile(r"^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_DEFINITION = re.compile(r"^\[(?P<name>[^\]^][^\]]*)\]:\s*(?P<target><[^>]*>|\S+)"
                         r"(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^)]*\)))?\s*$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_AUTOLINK = re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]*:[^<>\s]*|[^<>\s@]+@[^<>\s@]+)>")
_TARGET = (r"\(\s*(?P<target><[^<>\n]*>|[^\s()<>]*(?:\([^\s()]*\)[^\s()]*)*)"
           r"(?:\s+(?:\"[^\"]*\"|'[^']*'|\([^)]*\)))?\s*\)")
_LINK_END = re.compile(r"\]" + _TARGET)
_LINK = re.compile(r"!?\[(?P<text>[^\[\]]*)\](?:" + _TARGET + r"|\[(?P<name>[^\[\]]*)\])")
_REFERENCE = re.compile(r"\]\[(?P<name>[^\[\]]+)\]")
_ATTRIBUTE = re.compile(r"<[A-Za-z][^<>]*?\s(?P<key>href|src|id|name)\s*=\s*"
                        r"(?P<quote>[\"'])(?P<value>.*?)(?P=quote)", re.DOTALL)


@dataclass
class Block:
    """A paragraph, an item of a list, or a heading: its text by lines, and where it begins."""

    line: int
    lines: list
    heading: bool = False

    @property
    def text(self):
        return "\n".join(self.lines)


@dataclass
class Document:
    blocks: list = field(default_factory=list)
    tables: list = field(default_factory=list)  # Blocks; only their links are looked at
    definitions: dict = field(default_factory=dict)  # of links: name -> (line, target)
    unclosed: list = field(default_factory=list)  # (line, what)


def _blanks(line):
    return len(line) - len(line.lstrip())


def _label(name):
    """Names of link definitions are compared without regard to case and blanks."""
    return " ".join(name.lower().split())


def _cells(line):
    inner = re.sub(r"^\||(?<!\\)\|$", "", line.strip())
    return len(re.split(r"(?<!\\)\|", inner))


def _outside_code(text):
    """The text with each span of code replaced by as many letters x: same length, no syntax."""
    return _CODE_SPAN.sub(lambda span: re.sub(r"[^\n]", "x", span.group()), text)


class _Reader:
    """Takes one line after the other. `containers` are the open quotes and items of lists, from
    the outermost one: the width of an item's marker, or QUOTE."""

    QUOTE = 0

    def __init__(self, text):
        self.lines = [line.expandtabs(4) for line in text.splitlines()]
        self.document = Document()
        self.containers = []
        self.open = None  # the paragraph that the next line may continue
        self.rows = None  # the table
        self.fence = None  # (characters, number of the line) of open code
        self.comment = None  # number of the line of an open comment

    def read(self):
        for at in range(len(self.lines)):
            self.line(at)
        self.close()
        for begin, what in ((self.comment, "the comment"),
                            (self.fence and self.fence[1], "the code")):
            if begin is not None:
                self.document.unclosed.append((begin + 1, what))
        return self.document

    def close(self):
        if self.open and self.open.text.strip():
            self.document.blocks.append(self.open)
        self.open = self.rows = None

    def inside(self, line):
        """(number of open containers that continue in this line, the rest of the line in them)"""
        for number, width in enumerate(self.containers):
            if width == self.QUOTE:
                if not (quoted := _QUOTE.match(line)):
                    return number, line
                line = line[quoted.end():]
            elif line.strip():
                if not line.startswith(" " * width):
                    return number, line
                line = line[width:]
        return len(self.containers), line

    def line(self, at):
        matched, rest = self.inside(self.lines[at])
        whole = matched == len(self.containers)
        if self.comment is not None and whole:
            return self.in_comment(at, rest)
        if self.comment is not None:  # its quote or item has ended without it
            self.document.unclosed.append((self.comment + 1, "the comment"))
            self.comment = None
        if self.fence and whole:
            return self.in_code(rest)
        self.fence = None  # its quote or item has ended, and the code with it
        matched, rest = self.new_containers(matched, rest, at)
        if matched < len(self.containers):
            if self.open and rest.strip() and not self.begins(rest):
                return self.open.lines.append(rest.strip())  # a lazy continuation
            self.close()
            del self.containers[matched:]
        return self.leaf(at, rest)

    def new_containers(self, matched, rest, at):
        """Opens the quotes and items that begin in this line."""
        while _blanks(rest) <= 3:
            whole = matched == len(self.containers)
            if quoted := _QUOTE.match(rest):
                width, end = self.QUOTE, quoted.end()
            else:
                item = _ITEM.match(rest.strip())
                if not item or _RULER.match(rest.strip()) or (
                        whole and self.open and self.is_text(item)):
                    break
                space = len(item["space"]) if 1 <= len(item["space"]) <= 4 else 1
                width = end = _blanks(rest) + len(item["marker"]) + space
            self.close()
            del self.containers[matched:]
            self.containers.append(width)
            matched, rest = matched + 1, rest[end:]
        return matched, rest

    @staticmethod
    def is_text(item):
        """In a paragraph an empty item and "12. " begin no list."""
        return item["rest"] == "" or item["number"] not in (None, "1")

    @staticmethod
    def begins(rest):
        """Whether this line begins a block, and so cannot continue a paragraph."""
        text = rest.strip()
        return _blanks(rest) <= 3 and bool(_FENCE.match(text) or _HEADING.match(text)
                                           or _RULER.match(text) or text.startswith("<!--"))

    def leaf(self, at, rest):
        text = rest.strip()
        if not text:
            return self.close()
        if _blanks(rest) >= 4:  # code, if it continues no paragraph
            return self.open.lines.append(text) if self.open else None
        if self.open and _UNDERLINE.match(text):
            self.open.heading = True
            return self.close()
        if self.begins(rest):
            return self.block(at, text)
        if self.rows and "|" in text:
            return self.rows.lines.append(text)
        if self.table_at(at, text):
            self.close()
            self.rows = Block(at + 1, [text])
            return self.document.tables.append(self.rows)
        if not self.open and (defined := _DEFINITION.match(text)):
            return self.document.definitions.setdefault(
                _label(defined["name"]), (at + 1, defined["target"].strip("<>")))
        if not self.open:
            self.rows = None
            self.open = Block(at + 1, [])
        return self.open.lines.append(text)

    def block(self, at, text):
        self.close()
        if fence := _FENCE.match(text):
            self.fence = (fence.group(), at)
        elif text.startswith("<!--"):
            self.in_comment(at, text)
        elif heading := _HEADING.match(text):
            self.document.blocks.append(Block(at + 1, [heading.group(1) or ""], heading=True))

    def in_code(self, rest):
        characters = self.fence[0]
        text = rest.strip()
        if _blanks(rest) <= 3 and len(text) >= len(characters) and not text.strip(characters[0]):
            self.fence = None

    def in_comment(self, at, text):
        """A reader sees the text behind a comment."""
        begin = self.comment if self.comment is not None else at
        ends = text.find("-->", 4 if self.comment is None else 0)
        if self.comment is None and text.startswith(("<!-->", "<!--->")):
            ends = text.find("-->", 2)
        self.comment = begin if ends < 0 else None
        rest = text[ends + 3:].strip() if ends >= 0 else ""
        if rest.startswith("<!--"):
            self.in_comment(at, rest)
        elif rest:
            self.document.blocks.append(Block(at + 1, [rest]))

    def table_at(self, at, header):
        if "|" not in header or at + 1 == len(self.lines):
            return False
        matched, rule = self.inside(self.lines[at + 1])
        return (matched == len(self.containers) and _blanks(rule) <= 3 and "|" in rule
                and not _ITEM.match(rule.strip())
                and bool(_DELIMITERS.match(rule.strip())) and _cells(header) == _cells(rule))


@functools.lru_cache(maxsize=None)
def read(text):
    return _Reader(text).read()


def _without_links(text):
    """Links and images as their text, from the innermost one out."""
    while (shorter := _LINK.sub(lambda link: link["text"], text)) != text:
        text = shorter
    return text


def plain(text, code="code"):
    """The words that a reader sees. A span of code is one word; None keeps its content."""
    kept = []

    def keep(span):
        kept.append(span.group(2).strip() if code is None else code)
        return f"\x00{len(kept) - 1}\x00"
    text = _CODE_SPAN.sub(keep, text)
    text = _AUTOLINK.sub("link", _COMMENT.sub("", text))
    text = html.unescape(_TAG.sub("", _without_links(text)))
    text = re.sub(r"\\([^\w\s])", r"\1", text.replace("\\\n", "\n"))
    text = re.sub(r"\*+|~~|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)", "", text)
    return re.sub("\x00(\\d+)\x00", lambda number: kept[int(number[1])], text)


# Abbreviations whose full stop never ends a sentence, and abbreviations whose full stop may.
_NEVER = {"e.g.", "i.e.", "cf.", "vs.", "e.", "i.", "g."}
_SELDOM = {"etc.", "approx.", "incl.", "resp.", "max.", "min.", "no.", "fig.", "sec.", "ca."}


def _ends(word, following):
    bare = word.rstrip("\"'”’»)]")
    if not bare.endswith((".", "!", "?", "…")):
        return False
    start = following.lstrip("\"'“‘«([")[:1]
    lower = bare.lstrip("\"'“‘«([").lower()
    if lower in _NEVER:
        return False
    if lower in _SELDOM or bare.endswith(("...", "…")):
        return start.isupper()
    return bare == word or not start.islower()  # "(why?) and" continues


def sentences(text):
    """Words of each sentence of a block of prose. Colons and semicolons end none."""
    words = [word for word in re.split(r"[\s—–]+", plain(text)) if word]
    found, sentence = [], []
    for number, word in enumerate(words):
        sentence.append(word)
        following = words[number + 1] if number + 1 < len(words) else ""
        if not following or _ends(word, following):
            found.append([each for each in sentence if re.search(r"\w", each)])
            sentence = []
    return found


def slugs(document):
    """Anchors of a document: those that GitHub gives the headings, and ids or names in HTML."""
    found, seen = set(), {}
    for block in document.blocks:
        if block.heading:
            text = plain(" ".join(block.lines), code=None).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
        for attribute in _ATTRIBUTE.finditer(_outside_code(block.text)):
            if attribute["key"] in ("id", "name"):
                found.add(attribute["value"])
    return found


def links(document):
    """(line, target) of every link and image; (line, None, name) where a name is not defined."""
    for block in document.blocks + document.tables:
        text = _COMMENT.sub(lambda hidden: re.sub(r"[^\n]", " ", hidden.group()),
                            _outside_code(block.text))
        found = [(link.start(), link["target"].strip("<>")) for link in _LINK_END.finditer(text)]
        found += [(link.start(), link["value"]) for link in _ATTRIBUTE.finditer(text)
                  if link["key"] in ("href", "src")]
        for link in _REFERENCE.finditer(text):
            if _label(link["name"]) not in document.definitions:
                yield block.line + text.count("\n", 0, link.start()), None, link["name"]
        for start, target in found:
            yield block.line + text.count("\n", 0, start), target, ""
    for line, target in document.definitions.values():
        yield line, target, ""
