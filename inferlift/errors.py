"""What can go wrong, as one small tree.

InferliftError
├── DeclarationError   the profile or an argument is wrong; nothing was changed          exit 2
├── Refusal            unsafe as things stand; nothing was changed                        exit 2
├── Held               waits for an approval, or the numbers do not decide                exit 3
├── NoCapacity         this offer cannot be had now; the next one may                     exit 1
├── Retryable          the same call may succeed later                                    exit 1
├── Uncertain          an action was started and its outcome is not known yet             exit 1
├── CheckFailed        a gate, validator or verification said no                          exit 1
└── Interrupted        the operator stopped the run                                       exit 130

Each says what happened, why, and the next command to type.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path


class InferliftError(Exception):
    """Base of all errors that are shown to the user without a traceback."""

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", next_command: str = "") -> None:
        self.what = what
        self.why = why
        self.next_command = next_command
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why:  {self.why}")
        if self.next_command:
            lines.append(f"  next: {self.next_command}")
        return "\n".join(lines)


class DeclarationError(InferliftError):
    """The declaration is wrong: refused before anything is made."""

    exit_code = 2


class Refusal(InferliftError):
    """Doing this now would be unsafe."""

    exit_code = 2


class Held(InferliftError):
    """Waits for a person, or the evidence does not decide."""

    exit_code = 3


class NoCapacity(InferliftError):
    """The chosen offer cannot be had; the next one may be."""


class Retryable(InferliftError):
    """The same call may succeed later."""


class Uncertain(InferliftError):
    """An action was started and nobody knows yet how it ended."""


class CheckFailed(InferliftError):
    """A gate, a validator or a verification said no."""


class Interrupted(InferliftError):
    """The operator stopped the run."""

    exit_code = 130


def as_given(command: str, profile: object) -> str:
    """A next command, to be typed as it is: a profile that was given by its path is known by no name."""
    if not (isinstance(profile, str) and Path(profile).is_file()):
        return command
    return re.sub(r"--profile [\w-]+(?![\w./-])", lambda _: f"--profile {shlex.quote(profile)}", command)
