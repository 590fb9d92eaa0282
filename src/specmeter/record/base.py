"""The base of all records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler


class Record(BaseModel):
    """Base of all records: frozen, no unknown keys. The docstring of a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        properties: dict[str, dict[str, Any]] = handler.resolve_ref_schema(schema).get("properties", {})
        for name, description in descriptions(cls).items():
            if name in properties:
                properties[name].setdefault("description", description)
        return schema


def descriptions(record: type[Record]) -> dict[str, str]:
    """Name of a field -> its docstring, read from the source.

    pydantic can do so for every class as it is made (`use_attribute_docstrings`), which is a seventh of the time that
    a command takes to start; few commands ask.
    """
    import ast
    import inspect
    from itertools import pairwise
    from textwrap import dedent

    found: dict[str, str] = {}
    for kind in reversed(record.__mro__):
        if issubclass(kind, Record) and kind is not Record:
            (made,) = ast.parse(dedent(inspect.getsource(kind))).body
            for field, text in pairwise(made.body if isinstance(made, ast.ClassDef) else ()):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                        found[name] = inspect.cleandoc(words)
                    case _:
                        pass
    return found
