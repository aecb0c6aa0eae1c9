"""Values made of the OpenAPI document, and a check of requests against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

DOCUMENT: Dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "docs" / "api" / "openapi.json").read_text(encoding="utf-8")
)
SCHEMAS: Dict[str, Any] = DOCUMENT["components"]["schemas"]
# Operations by name, with `method` and `path`.
OPERATIONS: Dict[str, Dict[str, Any]] = {
    operation["operationId"]: {**operation, "method": method.upper(), "path": path}
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
REFERENCE = "#/components/schemas/"
# A text that each part of a path and of a query has to encode.
TEXT = "a/b c%?&ü"


def resolved(schema: Dict[str, Any]) -> Dict[str, Any]:
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"][len(REFERENCE) :]]
    return schema


def without_null(schema: Dict[str, Any]) -> Dict[str, Any]:
    for each in schema.get("oneOf", []):
        if each.get("type") != "null":
            return resolved(each)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return {**schema, "type": next(kind for kind in kinds if kind != "null")}
    return resolved(schema)


def example(schema: Dict[str, Any], is_full: bool, extra: bool = False, depth: int = 0) -> Any:
    """Returns a value of the schema: with all fields, or with the required ones alone; with `extra`, with unknown ones as well."""
    schema = without_null(resolved(schema))
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema.get("type")
    if kind == "array":
        # A document that holds itself ends.
        return [example(schema["items"], is_full, extra, depth + 1)] if depth < 8 else []
    if kind == "object":
        found = {
            name: example(each, is_full, extra, depth + 1)
            for name, each in schema.get("properties", {}).items()
            if is_full or name in schema.get("required", [])
        }
        if extra:
            found["of_a_later_daemon"] = {"deep": [1, None]}
        return found
    plain: Dict[Any, Any] = {"string": TEXT, "integer": 7, "boolean": True, "number": 0.5}
    return plain[kind]


def problems(schema: Dict[str, Any], value: Any, place: str) -> List[str]:
    """Returns what of a value is not as the schema says."""
    if value is None:
        allowed = "null" in schema.get("type", []) or any(each.get("type") == "null" for each in schema.get("oneOf", []))
        return [] if allowed else [f"{place}: null"]
    schema = without_null(resolved(schema))
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{place}: {value!r} is none of {schema['enum']}"]
    kind = str(schema.get("type"))
    kinds: Dict[str, Any] = {"array": list, "object": dict, "string": str, "integer": int, "boolean": bool, "number": float}
    if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return [f"{place}: {value!r} is no {kind}"]
    if kind == "integer" and value < schema.get("minimum", value):
        return [f"{place}: {value} is less than {schema['minimum']}"]
    if kind == "array":
        return [found for index, each in enumerate(value) for found in problems(schema["items"], each, f"{place}[{index}]")]
    if kind != "object" or "properties" not in schema:
        return []
    found = [f"{place}.{name} is missing" for name in schema.get("required", []) if name not in value]
    for name, each in value.items():
        if name in schema["properties"]:
            found += problems(schema["properties"][name], each, f"{place}.{name}")
        else:
            found.append(f"{place}.{name} is not in the document")
    return found


def answer_schema(operation: Dict[str, Any]) -> Dict[str, Any]:
    schema: Dict[str, Any] = operation["responses"]["200"]["content"]["application/json"]["schema"]
    return schema


def request_schema(operation: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the schema of the body, or of the query of a question."""
    if "requestBody" in operation:
        return resolved(operation["requestBody"]["content"]["application/json"]["schema"])
    query = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    return {"type": "object", "properties": {each["name"]: each["schema"] for each in query}}
