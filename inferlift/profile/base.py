"""What every section of a profile is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

Reference = Annotated[
    str,
    AfterValidator(lambda v: _reference(v)),
    Field(description="a secret reference: env:NAME or file:PATH", json_schema_extra={"secret": True}),
]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def impossible(key: str, why: str) -> PydanticCustomError:
    """What a validator over several keys raises: `key` (dotted, within its section) is the one to point at."""
    return impossibles([(key, why)])


def impossibles(found: list[tuple[str, str]]) -> PydanticCustomError:
    """The same for several findings at once: pairs of key and why."""
    said = "; ".join(f"{key}: {why}" for key, why in found)
    return PydanticCustomError("impossible", "{said}", {"said": said, "found": found})


def _reference(value: str) -> str:
    """A secret is a reference, never a value."""
    scheme, _, rest = value.partition(":")
    if scheme not in ("env", "file") or not rest:
        raise ValueError("expected a secret reference: env:NAME or file:PATH")
    return value
