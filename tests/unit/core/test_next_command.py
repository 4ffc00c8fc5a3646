"""What is told to be typed next can be typed: a profile given by its path is named by its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlift.errors import as_given

COMMAND = "./invoke approve --profile mine --reason '...'"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (COMMAND, "./invoke approve --profile {} --reason '...'"),
        ("./invoke deploy --profile /elsewhere/a.yaml", "./invoke deploy --profile /elsewhere/a.yaml"),
        ("./invoke doctor", "./invoke doctor"),
        ("plan --profile a, then deploy --profile a", "plan --profile {}, then deploy --profile {}"),
    ],
)  # fmt: skip
def test_a_path_is_given_back_as_it_was_given(tmp_path: Path, command: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.touch()
    assert as_given(command, str(path)) == told.replace("{}", str(path))


@pytest.mark.parametrize("given", ["mine", None, "", "gone.yaml"])
def test_a_name_stays_one(given: str | None) -> None:
    assert as_given(COMMAND, given) == COMMAND
