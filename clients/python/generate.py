#!/usr/bin/env python3
"""Writes dolmen/types.py and dolmen/_verbs.py from the OpenAPI document of the API.

generate.py [--check] [DOCUMENT]: DOCUMENT is docs/api/openapi.json of this repository unless named. With --check nothing is written,
and the exit code is 1 where a file differs from what the document gives.
"""

from __future__ import annotations

import argparse
import difflib
import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "api" / "openapi.json"
WIDTH = 120
JSON_BODY = "application/json"
REFERENCE = "#/components/schemas/"
# Field of each answer type for what a later daemon adds; argument of each method.
EXTRA = "extra"
TIMEOUT = "timeout"
HEAD = '"""{what}\n\nMade by generate.py from the OpenAPI document of the API. Change that, and run generate.py again.\n"""\n'

Json = Dict[str, Any]


class BadDocument(Exception):
    """The document has something that this generator does not know."""


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def safe(name: str) -> str:
    """Returns the name as an identifier; _wire.wire_name turns it back."""
    if not name.isidentifier() or name.endswith("_"):
        raise BadDocument(f"{name!r} cannot be an identifier")
    return name + "_" if keyword.iskeyword(name) else name


def prose(text: str) -> str:
    """Returns a description without line ends and without links into the source."""
    text = re.sub(r"\[`([^`]*)`\]\([^)]*\)", r"`\1`", text)
    text = " ".join(text.split())
    if text == "`SCHEMA`.":
        text = "Version of the documents of the API."
    return text.replace("\\", "\\\\").replace('"""', "'''")


def wrapped(text: str, indent: str, hang: str = "") -> List[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + hang, break_long_words=False)


# --- types ---------------------------------------------------------------------------------------------------------


def reference(schema: Json) -> str:
    return str(schema["$ref"])[len(REFERENCE) :]


def is_nullable(schema: Json, place: str) -> Tuple[Json, bool]:
    """Returns the schema without null, and whether null was in it."""
    if "oneOf" in schema:
        others = [each for each in schema["oneOf"] if each.get("type") != "null"]
        if len(others) != 1 or len(schema["oneOf"]) != 2:
            raise BadDocument(f"{place}: oneOf is known for one schema and null alone")
        return others[0], True
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others = [kind for kind in kinds if kind != "null"]
        if len(others) != 1:
            raise BadDocument(f"{place}: types {kinds} in one field")
        return {**schema, "type": others[0]}, "null" in kinds
    return schema, False


def hint_of(schema: Json, place: str, prefix: str, array: str) -> Tuple[str, bool]:
    """Returns the type of a schema without null, and whether null is allowed. `prefix` leads to the types from elsewhere."""
    schema, nullable = is_nullable(schema, place)
    for word in ("anyOf", "allOf", "prefixItems", "not", "patternProperties"):
        if word in schema:
            raise BadDocument(f"{place}: {word} is not known to generate.py")
    if "$ref" in schema:
        return prefix + reference(schema), nullable
    kind = schema.get("type")
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(each) for each in schema['enum'])}]", nullable
    if kind == "array":
        item, item_nullable = hint_of(schema["items"], place + "[]", prefix, array)
        return f"{array}[{f'Optional[{item}]' if item_nullable else item}]", nullable
    if kind == "integer":
        return ("Unsigned" if schema.get("minimum") == 0 and not prefix else "int"), nullable
    plain = {"string": "str", "boolean": "bool", "number": "float", "object": "Dict[str, Any]"}
    if kind not in plain or "properties" in schema:
        raise BadDocument(f"{place}: type {kind!r} is not known to generate.py")
    return plain[kind], nullable


class Field:
    """Property of a schema."""

    def __init__(self, owner: str, name: str, schema: Json, is_required: bool) -> None:
        self.name, self.attribute, self.schema, self.is_required = name, safe(name), schema, is_required
        self.place = f"{owner}.{name}"
        inner, _ = is_nullable(schema, self.place)
        self.description = prose(schema.get("description") or inner.get("description") or "")

    def hint(self, prefix: str, array: str, empty_list: bool) -> str:
        """Returns the annotation with its default value."""
        hint, nullable = hint_of(self.schema, self.place, prefix, array)
        if self.is_required:
            return f"Optional[{hint}]" if nullable else hint
        if empty_list and not nullable and hint.startswith(array):
            return f"{hint} = field(default_factory=list)"
        default = self.schema.get("default")
        if default is not None and self.schema.get("type") in ("boolean", "integer", "string"):
            return f"{hint} = {default!r}"
        return f"Optional[{hint}] = None"

    def argument(self) -> str:
        if self.name == "dry_run":
            return "dry_run: bool = False"
        hint, nullable = hint_of(self.schema, self.place, "types.", "Sequence")
        if self.is_required and not nullable:
            return f"{self.attribute}: {hint}"
        return f"{self.attribute}: Optional[{hint}]" + ("" if self.is_required else " = None")


def fields_of(name: str, schema: Json) -> List[Field]:
    required = schema.get("required", [])
    found = [Field(name, key, each, key in required) for key, each in schema["properties"].items()]
    return sorted(found, key=lambda each: (not each.is_required, each.name == "dry_run"))


# --- the document --------------------------------------------------------------------------------------------------


class Operation:
    """Verb of the document."""

    def __init__(self, method: str, path: str, operation: Json) -> None:
        self.name = str(operation["operationId"])
        self.method, self.path, self.summary = method.upper(), path, prose(operation["summary"])
        try:
            facts = operation["x-dolmen"]
            self.is_idempotent, self.has_job = bool(facts["idempotent"]), bool(facts["job"])
            self.role, self.error_codes = str(facts["role"]), list(facts["error_codes"])
        except KeyError as missing:
            raise BadDocument(f"{self.name}: x-dolmen lacks {missing}") from missing
        parameters = operation.get("parameters", [])
        self.parameters = [Field(self.name, each["name"], each["schema"], True) for each in parameters if each["in"] == "path"]
        in_path = re.findall(r"{(\w+)}", path)
        if sorted(in_path) != sorted(each.name for each in self.parameters):
            raise BadDocument(f"{self.name}: its path has {in_path}, its parameters are others")
        self.parameters.sort(key=lambda each: in_path.index(each.name))
        self.query = {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}
        self.request = ""
        if "requestBody" in operation:
            self.request = reference(operation["requestBody"]["content"][JSON_BODY]["schema"])
        elif self.query:
            self.request = self.name + "Query"
        self.answer = reference(operation["responses"]["200"]["content"][JSON_BODY]["schema"])
        if self.method not in ("GET", "POST") or (self.method == "GET") == ("requestBody" in operation):
            raise BadDocument(f"{self.name}: a question is a GET, a change a POST with a body")


class Document:
    """OpenAPI document, with a schema for each query as well."""

    def __init__(self, text: str) -> None:
        document = json.loads(text)
        self.schemas: Dict[str, Json] = dict(document["components"]["schemas"])
        self.operations: List[Operation] = []
        for path, item in document["paths"].items():
            self.operations += [Operation(method, path, each) for method, each in item.items()]
        self.operations.sort(key=lambda each: each.name)
        for each in self.operations:
            if each.query:
                self.schemas[each.request] = {
                    "type": "object",
                    "description": f"Query of {each.name}.",
                    "properties": each.query,
                }
        self.of_answers = self.reached_from({each.answer for each in self.operations} | {"ErrorDocument"})
        self.of_requests = self.reached_from({each.request for each in self.operations if each.request})

    def reached_from(self, names: Set[str]) -> Set[str]:
        reached: Set[str] = set()
        left = set(names)
        while left:
            name = left.pop()
            if name in reached:
                continue
            if name not in self.schemas:
                raise BadDocument(f"schema {name} is referred to, and is not there")
            reached.add(name)
            left |= {each[len(REFERENCE) :] for each in re.findall(r'"\$ref": "([^"]*)"', json.dumps(self.schemas[name]))}
        return reached


# --- dolmen/types.py -----------------------------------------------------------------------------------------------


def types_page(document: Document) -> str:
    aliases: List[str] = []
    classes: List[str] = []
    for name in sorted(document.of_answers | document.of_requests):
        schema = document.schemas[name]
        if "properties" in schema:
            classes += ["", "", *class_lines(document, name, schema)]
        else:
            aliases += ["", *wrapped(prose(schema.get("description", "")), "# ")]
            aliases += alias_lines(name, schema)
    lines = [HEAD.format(what="Documents of the API: a class for each object, a `Literal` for each enumeration.")]
    lines += ["from __future__ import annotations", "", "from dataclasses import dataclass, field"]
    lines += ["from typing import Any, Dict, List, Literal, Optional, Sequence", "", "from ._wire import Unsigned"]
    return "\n".join(lines + aliases + classes) + "\n"


def alias_lines(name: str, schema: Json) -> List[str]:
    if "enum" not in schema:
        return [f"{name} = {hint_of(schema, name, '', 'List')[0]}"]
    words = [json.dumps(each) for each in schema["enum"]]
    line = f"{name} = Literal[{', '.join(words)}]"
    return [line] if len(line) <= WIDTH else [f"{name} = Literal[", *(f"    {word}," for word in words), "]"]


def class_lines(document: Document, name: str, schema: Json) -> List[str]:
    is_answer = name in document.of_answers
    lines = ["@dataclass", f"class {name}:", *wrapped(f'"""{prose(schema.get("description", ""))}"""', "    ")]
    for each in fields_of(name, schema):
        if each.attribute == EXTRA:
            raise BadDocument(f"{each.place}: the name is taken by the fields of a later daemon")
        lines.append("")
        lines.append(f"    {each.attribute}: {each.hint('', 'List' if is_answer else 'Sequence', is_answer)}")
        if each.description:
            lines += wrapped(f'"""{each.description}"""', "    ")
    if is_answer:
        lines += ["", f"    {EXTRA}: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)"]
        lines.append('    """Fields of a later daemon, which this version of the package does not know."""')
    return lines


# --- dolmen/_verbs.py ----------------------------------------------------------------------------------------------


def verbs_page(document: Document) -> str:
    lines = [HEAD.format(what="Verbs of the API: what each is, and a method for each.")]
    lines += ["from __future__ import annotations", "", "from typing import Mapping, Optional, Sequence, TypeVar", ""]
    lines += ["from . import types", "from ._wire import Unsigned, Verb", "", 'A = TypeVar("A")', ""]
    for each in document.operations:
        lines += constant_lines(each)
    lines += ["", "VERBS: Mapping[str, Verb[object]] = {"]
    lines += [f'    "{snake(each.name)}": {constant(each)},' for each in document.operations]
    lines += ["}", '"""Verbs by the names of their methods."""', "", "", "class Verbs:"]
    lines += ['    """A method for each verb. `timeout` is how long a call may take in seconds, of the client where it is left out."""']
    lines += ["", "    def _call("]
    lines += ["        self, verb: Verb[A], path: Mapping[str, object], fields: Mapping[str, object], timeout: Optional[float]"]
    lines += ["    ) -> A:", "        raise NotImplementedError"]
    for each in document.operations:
        lines += ["", *method_lines(document, each)]
    return "\n".join(lines) + "\n"


def constant(operation: Operation) -> str:
    return f"_{snake(operation.name).upper()}"


def constant_lines(operation: Operation) -> List[str]:
    parameters = ", ".join(f'"{each.name}": {hint_of(each.schema, each.place, "", "List")[0]}' for each in operation.parameters)
    request = f"types.{operation.request}" if operation.request else "None"
    return [
        f"{constant(operation)} = Verb(",
        f'    name="{operation.name}",',
        f'    method="{operation.method}",',
        f'    path="{operation.path}",',
        f"    parameters={{{parameters}}},",
        f"    request={request},",
        f"    answer=types.{operation.answer},",
        f'    role="{operation.role}",',
        f"    is_idempotent={operation.is_idempotent},",
        f"    has_job={operation.has_job},",
        "    error_codes=(",
        *wrapped(" ".join(f'"{code}",' for code in operation.error_codes), "        "),
        "    ),",
        ")",
    ]


def method_lines(document: Document, operation: Operation) -> List[str]:
    fields = fields_of(operation.request, document.schemas[operation.request]) if operation.request else []
    path = [f"{each.attribute}: {hint_of(each.schema, each.place, 'types.', 'List')[0]}" for each in operation.parameters]
    given = [each.argument() for each in fields]
    names = [each.name for each in operation.parameters] + [each.name for each in fields] + [TIMEOUT, "self"]
    if len(set(names)) != len(names):
        raise BadDocument(f"{operation.name}: two arguments have one name, of {', '.join(names)}")
    arguments = ["self", *path, "*", *given, f"{TIMEOUT}: Optional[float] = None"]
    lines = [f"    def {snake(operation.name)}("]
    lines += [f"        {each}," for each in arguments]
    lines += [f"    ) -> types.{operation.answer}:", *docstring(operation, fields)]
    groups = [f"{{{', '.join(pair(each) for each in group)}}}" for group in (operation.parameters, fields)]
    call = f"        return self._call({constant(operation)}, {', '.join(groups)}, {TIMEOUT})"
    if len(call) <= WIDTH:
        return [*lines, call]
    lines += ["        return self._call(", f"            {constant(operation)},"]
    for group, members in zip(groups, (operation.parameters, fields)):
        if len(group) < WIDTH - 13:
            lines.append(f"            {group},")
        else:
            lines += ["            {", *(f"                {pair(each)}," for each in members), "            },"]
    return [*lines, f"            {TIMEOUT},", "        )"]


def pair(each: Field) -> str:
    return f'"{each.attribute}": {each.attribute}'


def docstring(operation: Operation, fields: List[Field]) -> List[str]:
    lines = wrapped(f'"""{operation.summary}', "        ")
    described = [each for each in fields if each.description]
    if described:
        lines.append("")
        for each in described:
            lines += wrapped(f"{each.attribute}: {each.description}", "        ", "    ")
    facts = [f"Least role: {operation.role}."]
    if operation.method == "POST" and operation.is_idempotent:
        facts.append("A second time it succeeds and changes nothing.")
    if operation.has_job:
        facts.append("The answer may hold a job.")
    lines += ["", *wrapped(" ".join(facts), "        ")]
    lines += wrapped(f"Error codes: {', '.join(operation.error_codes)}.", "        ")
    return [*lines, '        """']


# --- the files -----------------------------------------------------------------------------------------------------


def pages(text: str) -> Dict[Path, str]:
    document = Document(text)
    return {HERE / "dolmen" / "types.py": types_page(document), HERE / "dolmen" / "_verbs.py": verbs_page(document)}


def differences(path: Path, page: str) -> str:
    there = path.read_text(encoding="utf-8") if path.exists() else ""
    found = difflib.unified_diff(there.splitlines(), page.splitlines(), str(path), "made from the document", lineterm="", n=1)
    return "\n".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes dolmen/types.py and dolmen/_verbs.py from the OpenAPI document.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file differs")
    parser.add_argument("document", nargs="?", type=Path, default=DOCUMENT)
    options = parser.parse_args()
    try:
        made = pages(options.document.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, BadDocument) as error:
        print(f"generate.py: reading {options.document}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    stale = 0
    for path, page in made.items():
        changes = differences(path, page)
        if changes and options.check:
            stale = 1
            print(changes)
            print(f"generate.py: {path} differs from the document; run generate.py, and look at the difference", file=sys.stderr)
        elif changes:
            path.write_text(page, encoding="utf-8")
            print(f"wrote {path}")
    return stale


if __name__ == "__main__":
    sys.exit(main())
