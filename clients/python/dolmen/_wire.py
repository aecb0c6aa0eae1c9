"""Values between Python and JSON, by the annotations of dolmen.types.

Arguments are checked before anything is sent: a wrong one is a BadArgument that names it. Answers are read tolerantly: a field that
is not known goes to `extra`, a word that an enumeration does not have is kept. A field that is missing, or of another type, is a
BadAnswer that names its place.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Dict, Generic, List, Literal, Mapping, Optional, Tuple, Type, TypeVar, Union

from .errors import BadAnswer, BadArgument

A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True)
class Least:
    """Smallest value of a number."""

    value: int


Unsigned = Annotated[int, Least(0)]
EXTRA = "extra"
# Values nested deeper than any document is.
DEPTH_MAX = 64


@dataclass(frozen=True)
class Verb(Generic[A_co]):
    """Declaration of a verb."""

    name: str
    """Name in the document."""
    method: str
    path: str
    """Path on the Unix socket, with `{parameter}`."""
    parameters: Mapping[str, Any]
    """Types of the parameters of the path."""
    request: Optional[Type[object]]
    """Type of the body or of the query."""
    answer: Type[A_co]
    role: str
    """Least role of a caller: viewer, operator or admin."""
    is_idempotent: bool
    """Whether the same request a second time succeeds and changes nothing."""
    has_job: bool
    """Whether it may start or end a job."""
    error_codes: Tuple[str, ...]

    @property
    def is_change(self) -> bool:
        return self.method != "GET"


@dataclass(frozen=True)
class Slot:
    """Field of a document."""

    attribute: str
    name: str
    hint: Any
    is_required: bool


def wire_name(attribute: str) -> str:
    """Returns the name in JSON: a keyword of Python ends in an underscore here."""
    return attribute[:-1] if attribute.endswith("_") else attribute


# Fields of the types that were asked for.
_SLOTS: Dict[Type[Any], Tuple[Slot, ...]] = {}


def slots_of(kind: Type[Any]) -> Tuple[Slot, ...]:
    if kind in _SLOTS:
        return _SLOTS[kind]
    hints = typing.get_type_hints(kind, include_extras=True)
    slots = []
    for each in dataclasses.fields(kind):
        if each.name != EXTRA:
            is_required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
            slots.append(Slot(each.name, wire_name(each.name), hints[each.name], is_required))
    return _SLOTS.setdefault(kind, tuple(slots))


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- to JSON -------------------------------------------------------------------------------------------------------


def encode(hint: Any, value: object, place: str) -> Any:
    """Returns the value as JSON has it. `place` is the method and the argument, for messages."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is Union:
        return None if value is None else encode(arguments[0], value, place)
    if origin is Annotated:
        number = encode(arguments[0], value, place)
        if number < arguments[1].value:
            raise BadArgument(place, f"{number} is less than {arguments[1].value}")
        return number
    if origin is Literal:
        if value not in arguments:
            raise BadArgument(place, f"{shown(value)} is none of {', '.join(map(str, arguments))}")
        return value
    if origin is not None and origin is not dict:
        if isinstance(value, (str, bytes)) or not isinstance(value, typing.Sequence):
            raise BadArgument(place, f"{shown(value)} is no list")
        return [encode(arguments[0], each, f"{place}[{index}]") for index, each in enumerate(value)]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, hint):
            raise BadArgument(place, f"{shown(value)} is no types.{hint.__name__}")
        given = {slot.attribute: getattr(value, slot.attribute) for slot in slots_of(hint)}
        return encode_fields(hint, given, place)
    # A bool is an int in Python, and nowhere else.
    if not isinstance(hint, type) or not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        words = {str: "text", int: "whole number", bool: "True or False"}
        raise BadArgument(place, f"{shown(value)} is no {words.get(hint, hint)}")
    return value


def encode_fields(kind: Type[Any], given: Mapping[str, object], place: str) -> Dict[str, Any]:
    """Returns a request. What is None is left out, and so is `dry_run` where it is False."""
    document = {}
    for slot in slots_of(kind):
        value = given[slot.attribute]
        if value is None and not slot.is_required:
            continue
        encoded = encode(slot.hint, value, f"{place}.{slot.attribute}")
        if slot.name != "dry_run" or encoded:
            document[slot.name] = encoded
    return document


# --- from JSON -----------------------------------------------------------------------------------------------------


def decode(hint: Any, value: object, place: str, depth: int = 0) -> Any:
    """Returns a value of the type that the annotation names. `place` is the path in the answer, for messages."""
    if depth > DEPTH_MAX:
        raise BadAnswer(f"{place}: nested more than {DEPTH_MAX} deep")
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is Union:
        return None if value is None else decode(arguments[0], value, place, depth)
    if origin is Annotated:
        return decode(arguments[0], value, place, depth)
    if origin is Literal:
        return expected(str, value, place)
    if origin is list:
        items = expected(list, value, place)
        return [decode(arguments[0], each, f"{place}[{index}]", depth + 1) for index, each in enumerate(items)]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return decode_object(hint, expected(dict, value, place), place, depth + 1)
    return expected(dict if origin is dict else hint, value, place)


def expected(kind: Type[Any], value: object, place: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadAnswer(f"{place}: found {shown(value)}, expected {kind.__name__}")
    return value


def decode_object(kind: Type[Any], value: Dict[str, Any], place: str, depth: int) -> Any:
    given: Dict[str, Any] = {}
    names: List[str] = []
    for slot in slots_of(kind):
        names.append(slot.name)
        if slot.name in value:
            given[slot.attribute] = decode(slot.hint, value[slot.name], f"{place}.{slot.name}", depth)
        elif slot.is_required:
            raise BadAnswer(f"{place}: field {slot.name} is missing")
    if any(each.name == EXTRA for each in dataclasses.fields(kind)):
        given[EXTRA] = {name: each for name, each in value.items() if name not in names}
    return kind(**given)
