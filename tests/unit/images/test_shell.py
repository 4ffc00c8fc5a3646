from __future__ import annotations

import pytest

from inferlift.images import accounts
from inferlift.images.shell import commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b && c || d; e", [("", "a b"), ("&&", "c"), ("||", "d"), (";", "e")]),
        ("a 'x && y' \"$(z; w)\" $(q && r)", [("", "a 'x && y' \"$(z; w)\" $(q && r)")]),
        ("if ! a; then b; fi", [("!", "a"), ("then", "b")]),
        ("a \\\n  # said\n  b \\\n\n  c", [("", "a b c")]),
        ("a > f 2>&1 b", [("", "a b")]),
        ("V=1 a", [("", "a")]),
        ("(a; b) | c", [("(", "a"), (";", "b"), ("|", "c")]),
        ("{ a; } >x && b", [("{", "a"), ("&&", "b")]),
        ("a#b # not a comment", [("", "a#b # not a comment")]),
    ],
)
def test_commands_of_a_run_line(text: str, expected: list[tuple[str, str]]) -> None:
    found = [(c.before, " ".join(w.raw for w in c.words)) for c in commands(text) if c.words]
    assert found == expected


def test_a_script_ends_commands_at_newlines_and_knows_comments() -> None:
    found = commands("a b # c\n# apk add x\nd \\\n e\n", dockerfile=False)
    assert [[w.raw for w in c.words] for c in found] == [["a", "b"], ["d", "e"]]


@pytest.mark.parametrize(
    ("busybox", "debian"),
    [
        ("adduser -D x", "useradd --create-home --user-group --home-dir /home/x --shell /bin/sh x"),
        (
            "adduser -S -DHu 100 -G g x",
            "useradd --system --no-create-home --uid 100 --gid g --home-dir /home/x --shell /bin/false x",
        ),
        (
            "adduser --disabled-password --gecos '' --home=/srv x",
            "useradd --create-home --user-group --home-dir /srv --shell /bin/sh x",
        ),
        ("adduser x docker", "usermod --append --groups docker x"),
        ("addgroup x docker", "usermod --append --groups docker x"),
        ("addgroup -S -g 82 www", "groupadd --system --gid 82 www"),
        ("addgroup -g82 www", "groupadd --gid 82 www"),
        ("deluser x", "userdel x"),
        ("deluser x g", "gpasswd --delete x g"),
        ("delgroup g", "groupdel g"),
    ],
)
def test_account_commands(busybox: str, debian: str) -> None:
    import shlex

    assert accounts.translate(shlex.split(busybox)) == debian


@pytest.mark.parametrize("command", ["adduser", "adduser -Z x", "adduser --home", "addgroup a b c", "deluser -r"])
def test_account_commands_that_busybox_does_not_know(command: str) -> None:
    with pytest.raises(accounts.Unsupported):
        accounts.translate(command.split())
