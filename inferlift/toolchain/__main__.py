"""`python -m inferlift.toolchain NAME...` makes tools by name, those of the lab by default."""

from __future__ import annotations

import sys

from inferlift.errors import InferliftError
from inferlift.toolchain import ensure, tools_for


def main(names: list[str]) -> int:
    try:
        ensure(names or tools_for("lab"), lambda line: print(line, file=sys.stderr, flush=True))
    except InferliftError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
