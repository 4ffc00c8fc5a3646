"""BusyBox' adduser, addgroup, deluser and delgroup as the shadow tools that every Debian and CUDA base has.

Meaning of the options and defaults: BusyBox loginutils/adduser.c and addgroup.c.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_LONG = {
    "--home": "-h", "--gecos": "-g", "--shell": "-s", "--ingroup": "-G", "--uid": "-u", "--skel": "-k",
    "--system": "-S", "--disabled-password": "-D", "--no-create-home": "-H", "--empty-password": "-D", "--gid": "-g",
}  # fmt: skip


class Unsupported(Exception):
    """An option that these tools do not have."""


def translate(words: Sequence[str]) -> str:
    """The Debian command for one BusyBox account command. Raises Unsupported with the reason."""
    name, arguments = words[0], words[1:]
    if name == "adduser":
        return _adduser(arguments)
    if name == "addgroup":
        return _addgroup(arguments)
    options, names = _options(arguments, "", "")
    if len(names) == 2:
        return f"gpasswd --delete {names[0]} {names[1]}"
    if len(names) != 1 or options:
        raise Unsupported(f"{name} {' '.join(arguments)}")
    return f"{'userdel' if name == 'deluser' else 'groupdel'} {names[0]}"


def _adduser(arguments: Sequence[str]) -> str:
    options, names = _options(arguments, "hgsGuk", "SDH")
    if len(names) == 2 and not options:
        return f"usermod --append --groups {names[1]} {names[0]}"
    if len(names) != 1:
        raise Unsupported(f"adduser with {len(names)} names")
    system = "-S" in options
    out = ["useradd"]
    if system:
        out.append("--system")
    out.append("--no-create-home" if "-H" in options else "--create-home")
    if "-u" in options:
        out += ["--uid", options["-u"]]
    group = options.get("-G") or ("nogroup" if system else None)
    out += ["--gid", group] if group else ["--user-group"]
    out += ["--home-dir", options.get("-h") or f"/home/{names[0]}"]
    shell = options.get("-s") or ("/bin/false" if system else "/bin/sh")
    out += ["--shell", "/bin/sh" if shell == "/bin/ash" else shell]
    if options.get("-g"):
        out += ["--comment", _quote(options["-g"])]
    if "-k" in options:
        out += ["--skel", options["-k"]]
    return " ".join([*out, names[0]])


def _addgroup(arguments: Sequence[str]) -> str:
    options, names = _options(arguments, "g", "S")
    if len(names) == 2 and not options:
        return f"usermod --append --groups {names[1]} {names[0]}"
    if len(names) != 1:
        raise Unsupported(f"addgroup with {len(names)} names")
    out = ["groupadd"] + (["--system"] if "-S" in options else [])
    if "-g" in options:
        out += ["--gid", options["-g"]]
    return " ".join([*out, names[0]])


def _options(arguments: Sequence[str], valued: str, flags: str) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    names: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and word != "--":
            long, _, value = word.partition("=")
            short = _LONG.get(long)
            if short is None:
                raise Unsupported(f"option {long}")
            options[short] = (value or (rest.pop(0) if rest else "")) if short[1] in valued else ""
        elif word.startswith("-") and len(word) > 1:
            _short(word[1:], rest, valued, flags, options)
        elif word != "--":
            names.append(word)
    return options, names


def _short(cluster: str, rest: list[str], valued: str, flags: str, options: dict[str, str]) -> None:
    """A cluster such as -DHu 1000 or -u1000."""
    while cluster:
        letter, cluster = cluster[0], cluster[1:]
        if letter in valued:
            options[f"-{letter}"] = cluster or (rest.pop(0) if rest else "")
            return
        if letter not in flags:
            raise Unsupported(f"option -{letter}")
        options[f"-{letter}"] = ""


def _quote(text: str) -> str:
    return f'"{text}"' if "$" in text and '"' not in text else shlex.quote(text)
