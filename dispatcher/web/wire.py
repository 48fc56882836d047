"""The base of every answer's shape."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Base of all answers. Servers make exactly these fields; a client may skip fields that it does not know yet."""

    # Validators and serializers are made when one is used: most models only ever are parts of others.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)
