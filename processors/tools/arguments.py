"""The arguments of a tool: the JSON schema made from the signature, and the check of raw arguments.

The model reads the schema, so the schema is small and stable: it has the parameters in the order of
the signature, without titles. The check is strict, because an approval is bound to the exact
arguments that a person saw: no text is converted to a number, no key may occur twice, and unknown
keys are rejected.
"""

import copy
import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

_ERRORS_SHOWN_MAX = 5  # a model needs only the first few to correct a call
_ERROR_CHARS_MAX = 300  # one error may quote an enum with hundreds of members
_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")  # with any other name, the API rejects the whole request
_CONTEXTS = ("ToolContext", "IsolatedContext")
_VALUES_KEPT = ("default", "enum", "const", "examples")  # data, not schemas: never cleaned


class ToolArguments(Protocol):
    """The interface of a tool's arguments: the schema and the check."""

    @property
    def schema(self) -> Mapping[str, Any]: ...

    def parse(self, raw: bytes) -> dict[str, Any]: ...


class Arguments(NamedTuple):
    """The parameters of one tool. `schema`: for the model; `adapter`: checks the arguments of a
    call, with pydantic."""

    names: tuple[str, ...]
    schema: Mapping[str, Any]
    adapter: Any

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Parse raw JSON into keyword arguments. Raises ValueError, whose text lists all errors in
        the arguments."""
        raw = raw or b"{}"  # the input of a call without arguments may be empty
        object_of(raw)
        try:
            value = self.adapter.validate_json(raw, strict=True, extra="forbid")
        except ValueError as error:
            raise ValueError(_reasons(error)) from None
        except Exception as error:  # a validator of the tool's own types may raise anything
            raise ValueError(f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]) from error
        return {name: getattr(value, name) for name in self.names}


def why_wrong(parse: Callable[[bytes], object], raw: bytes) -> str | None:
    """The error that `parse` finds in raw JSON arguments, as text for the model, or None."""
    try:
        parse(raw)
    except ValueError as error:
        return str(error)
    return None


def arguments_of(function: Callable[..., Any], name: str) -> tuple[Arguments, str | None]:
    """The arguments of a tool's function, and the name of its context parameter if it has one.

    Raises TypeError if a parameter cannot be offered to a model; the text names the parameter and
    the reason.
    """
    parameters = list(inspect.signature(function).parameters.values())
    hints = _hints(function, name)
    context = None
    if parameters and _takes_context(parameters[0], hints):
        first = parameters.pop(0)
        if first.kind is first.KEYWORD_ONLY:
            raise TypeError(f"parameter {first.name!r} of tool {name} is passed by position")
        context = first.name
    for later in parameters:
        if _takes_context(later, hints):
            raise TypeError(
                f"parameter {later.name!r} of tool {name} gets the ToolContext, so it must be the "
                "first parameter"
            )
    fields = [_field(name, p, hints) for p in parameters]
    shape = dataclasses.make_dataclass(f"arguments_of_{name}", fields, kw_only=True)
    shape.__doc__ = None  # else the generated signature becomes the schema's description
    try:
        adapter, schema = _adapt(shape)
    except Exception as error:
        why = _no_schema(name, parameters, fields)
        raise TypeError(why or f"tool {name} takes a type that JSON lacks: {error}") from None
    for parameter, (_, hint, *_default) in zip(parameters, fields, strict=True):
        _demand_default(name, parameter, hint)
    return Arguments(tuple(p.name for p in parameters), schema, adapter), context


def _no_schema(tool: str, parameters: list[inspect.Parameter], fields: list[Any]) -> str:
    """The text of an error that names the first parameter whose type has no JSON schema, and lists
    the types that are allowed; '' if every type has a schema."""
    from pydantic import TypeAdapter

    for parameter, (_, hint, *_default) in zip(parameters, fields, strict=True):
        try:
            TypeAdapter(hint).json_schema()
        except Exception:  # pydantic has a dozen error classes for types without a schema
            return (
                f"parameter {parameter.name!r} of tool {tool} has the type "
                f"{_type_name(parameter)}, which JSON lacks, so no model can write it. Use str, "
                "int, float, bool, list, dict, Literal, an Enum, a dataclass, a TypedDict or a "
                "pydantic model"
            )
    return ""


def _demand_default(tool: str, parameter: inspect.Parameter, hint: Any) -> None:
    """Raise TypeError if a parameter's default does not fit its annotation. A default of None fits
    every annotation, because it means that the argument was not given."""
    from pydantic import TypeAdapter, ValidationError

    default = parameter.default
    if default is parameter.empty or default is None:
        return
    try:
        TypeAdapter(hint).validate_python(default)
    except ValidationError:
        raise TypeError(
            f"the default of parameter {parameter.name!r} of tool {tool} is {default!r}, which is "
            f"not of its type {_type_name(parameter)}"
        ) from None


def _type_name(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return getattr(annotation, "__name__", None) or str(annotation)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise TypeError(
            f"the annotations of tool {name} cannot be resolved ({error}): "
            "define their types at module level"
        ) from error


def _takes_context(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    return parameter.name == "ctx" or getattr(hint, "__name__", "") in _CONTEXTS


def _field(tool: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> tuple[Any, ...]:
    """One parameter as a dataclass field. Raises TypeError if a model could not pass this
    parameter, for example because it has no annotation."""
    where = f"parameter {parameter.name!r} of tool {tool}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"{where} must not be variadic or positional-only: models name arguments")
    if parameter.name.startswith("_"):
        raise TypeError(f"{where} must not begin with an underscore")
    if _NAME.fullmatch(parameter.name) is None:
        raise TypeError(f"{where} must have a name of 1-64 characters of [A-Za-z0-9_]")
    if parameter.name not in hints:
        raise TypeError(f"{where} needs an annotation: it becomes the schema the model sees")
    hint = _described(hints[parameter.name])
    if parameter.default is parameter.empty:
        return parameter.name, hint
    default = parameter.default
    try:
        field = dataclasses.field(default=default)
        hash(default)
    except TypeError:  # a list or dict: each call gets a copy
        field = dataclasses.field(default_factory=lambda: copy.deepcopy(default))
    return parameter.name, hint, field


def _described(hint: Any) -> Any:
    """Convert `Annotated[T, "text"]` into a pydantic description. The author of a tool therefore
    need not import pydantic."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    from pydantic import Field  # takes 50 ms, and only processes that define tools need it

    base, *notes = typing.get_args(hint)
    notes = [Field(description=n) if isinstance(n, str) else n for n in notes]
    return typing.Annotated[(base, *notes)]


def _adapt(shape: Any) -> tuple[Any, Mapping[str, Any]]:
    from pydantic import ConfigDict, TypeAdapter

    shape.__pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    schema = _clean(adapter.json_schema())
    ordered = {"type": "object", "properties": schema.pop("properties", {})}
    return adapter, {**ordered, **{k: v for k, v in schema.items() if k != "type"}}


def _clean(schema: Any) -> Any:
    """Remove titles, which repeat the names and cost tokens in every request."""
    if isinstance(schema, list):
        return [_clean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            cleaned[key] = {name: _clean(part) for name, part in value.items()}
        elif key in _VALUES_KEPT:
            if value is not None:  # `default: null` says no more than "not required"
                cleaned[key] = value
        elif key != "title":
            cleaned[key] = _clean(value)
    return cleaned


def object_of(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError for anything else, and if a key occurs twice."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"the key {twice[:80]!r} occurs twice")
        return found

    def constant(text: str) -> None:
        raise ValueError(f"{text} is not JSON")

    try:
        value = json.loads(raw.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("the arguments are not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("the arguments must be a JSON object")
    return value


def _reasons(error: Any) -> str:
    """The error messages in a pydantic ValidationError. The invalid values are left out, because
    they may be large."""
    listed = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in listed[:_ERRORS_SHOWN_MAX]:
        where = ".".join(str(part) for part in item["loc"]) or "arguments"
        lines.append(f"{where}: {item['msg']}"[:_ERROR_CHARS_MAX])
    if len(listed) > _ERRORS_SHOWN_MAX:
        lines.append(f"{len(listed) - _ERRORS_SHOWN_MAX} more")
    return "; ".join(lines)
