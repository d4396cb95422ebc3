"""What Java and Python read in one way is taken as it is; all else has a place, and something to write instead."""

from __future__ import annotations

import pytest

from lakegate.checks.parse import parse_check
from lakegate.checks.regex import RegexError, java_pattern
from lakegate.errors import CheckError

_TAKEN = (
    *(
        "^[A-Z]{3}",
        r"\d+\s\w",
        "a|b|",
        "()",
        "[]a]",
        "[^]a]",
        r"[\w.-]",
        "[a-]",
        "[-a&|~]",
        "x{0,3}?",
        "a++",
        "(?>a|b)+",
    ),
    *(r"(a)\1", r"(a|b)\1[0]", r"(?:(a)\1)+", "(?i)abc", "(?is:ab)", "(?-i:é)", "(?=a)b", "(?!é)", r"\A\x41\u00e9\z"),
    *("a]}", r"\{\}\_\ ", "é😀", r"[\]\[&]"),
)
_REFUSED = (
    (r"\h", r"'\h' at character 1", r"[ \t\xa0]"),
    (r"\Qa", r"'\Q' at character 1", "a backslash before each"),
    ("x(?<=a+)b", "'(?<=' at character 2", "(?<=a)b"),
    ("(?<!a|bc)b", "'(?<!' at character 1", "(?<=a)b"),
    ("(?i)é", "'é' at character 5", "[éÉ]"),
    (r"(?i)\u00e9", r"'\u00e9' at character 5", "[éÉ]"),
    ("(?i)[a-é]", "'é' at character 8", "[éÉ]"),
    (r"(?i)(a)\1", r"'\1' at character 8", "what it refers to"),
    ("a{2", "'{' at character 2", r"\{"),
    ("a{,2}", "'{' at character 2", r"\{"),
    ("a{123456}", "'{123456}' at character 2", "99,999"),
    ("a{3,2}", "at character 3", "min repeat greater"),
    ("(?P<x>a)", "'(?P<' at character 1", "write (…)"),
    ("(?<x>a)", "'(?<' at character 1", "write (…)"),
    ("(?#x)", "'(?#' at character 1", "leave the comment out"),
    ("(a)?(?(1)b|c)", "'(?(' at character 5", "(?:…|…)"),
    *((f"{flag}a", "'(?' at character 1", "i and s only") for flag in ("(?x)", "(?m)", "(?u)", "(?U)", "(?a)", "(?)")),
    ("a(?i)b", "at character 2", "not at the start"),
    (r"^a\Z", r"'\Z' at character 3", r"\z or $"),
    *(
        (f"a{escape}", f"'{escape}' at character 2", "write ")
        for escape in (r"\B", r"\v", r"\R", r"\X", r"\e", r"\cA"[:2])
    ),
    *(
        (f"a{escape}", f"'{escape[:2]}' at character 2", "write ")
        for escape in (r"\p{L}", r"\P{L}", r"\k<x>", r"\N{DIGIT}")
    ),
    *(
        (f"a{escape}", f"'{escape[:2]}' at character 2", "write ")
        for escape in (r"\012", r"\x4", r"\u12", r"\U00000041")
    ),
    (r"a\G", r"'\G' at character 2", "leave it out"),
    (r"\j", r"'\j' at character 1", "write j alone"),
    (r"\é", r"'\é' at character 1", "write é alone"),
    (r"[\b]", r"'\b' at character 2", r"\x08"),
    (r"[\1]", r"'\1' at character 2", "write 1 alone"),
    ("^[[:alpha:]]+", "'[' at character 3", "[A-Za-z]"),
    ("[^]a[]", "'[' at character 5", r"\["),
    *((f"[a{sign}b]", f"'{sign}' at character 3", f"\\{sign[0]}") for sign in ("&&", "--", "||", "~~")),
    ("[!--]", "'--' at character 3", r"\-"),
    ("[z-a]", "'z-a' at character 2", r"\-"),
    (r"[\d-z]", r"'\d-z' at character 2", r"\-"),
    (r"(a)\10", r"'\1' at character 4", r"\1[0]"),
    (r"(a\1)", r"'\1' at character 3", "always matches once"),
    *(
        (pattern, r"'\1' at character", "always matches once")
        for pattern in (r"\1(a)", r"(a)?\1", r"(a)*\1", r"(?:(a)|b)\1")
    ),
    *(
        (pattern, r"'\1' at character", "always matches once")
        for pattern in (r"(?:(a)|b\1)", r"(?!(a))\1", r"(?:(a))+\1")
    ),
    (r"(a)(?<=\1)", r"'\1' at character 8", "what it refers to"),
    ("*a", "'*' at character 1", r"\*"),
    ("a|+", "'+' at character 3", r"\+"),
    ("a**", "'*' at character 3", "(?:…)"),
    ("a{2}{3}", "'{3}' at character 5", "(?:…)"),
    ("(?:ab)++", "'+' at character 8", "(?>"),
    ("^*", "'*' at character 2", "leave it out"),
    ("(?=a)*", "'*' at character 6", "leave it out"),
    ("(x", "'(' at character 1", r"\("),
    ("x)", "')' at character 2", r"\)"),
    ("[a-z", "'[' at character 1", r"\["),
    ("[]", "'[' at character 1", r"\["),
    ("x\\", "'\\' at character 2", "write two"),
    ("\ud83d", r"'\ud83d' at character 1", "surrogate pair"),
    ("(" * 41 + ")" * 41, "'(' at character 41", "40 levels"),
    ("(a+)+$", "can take forever", "a++"),
    ("", "is empty", ""),
    ("\b", "contains a backspace", "word boundary"),
)


@pytest.mark.parametrize("pattern", _TAKEN)
def test_what_both_read_alike_is_taken_as_it_is(pattern: str) -> None:
    assert java_pattern(pattern) == pattern


@pytest.mark.parametrize(("pattern", "place", "instead"), _REFUSED)
def test_all_else_is_refused_with_its_place(pattern: str, place: str, instead: str) -> None:
    with pytest.raises(RegexError) as caught:
        java_pattern(pattern)
    assert place in str(caught.value)
    assert instead in str(caught.value)


def test_java_reads_ends_of_lines_words_and_characters_like_python() -> None:
    assert java_pattern(r"^a.$") == r"(?d)^a.$"
    assert java_pattern(r"^a$", to_the_end=True) == r"^a\z"
    # Java finds a low surrogate in the middle of a character, where Python has none: it must not begin there.
    for pattern in (r"\bx", "(?<!a)x", "[\u0100-\uffff]"):
        assert java_pattern(pattern).endswith("\U00010000{0}")


def test_a_check_says_it_when_it_is_read() -> None:
    for check in (r"matches(c, r'a{2')", r"not_match_regex(c, r'a{2')", """json_schema(c, '{"pattern": "a{2"}')"""):
        with pytest.raises(CheckError, match=r"'a\{2' has '\{' at character 2.* write \\\{"):
            parse_check(check)
