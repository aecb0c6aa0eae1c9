"""Each verb by its method, against a server that knows the document alone."""

from __future__ import annotations

import dataclasses
import json
import keyword
import typing
import unittest
from typing import Any, Dict, List, Tuple
from urllib.parse import parse_qs, unquote, urlsplit

import dolmen
from dolmen import _wire

from .examples import OPERATIONS, answer_schema, example, problems, request_schema
from .fake import Fake, Handler


def operation_of(method: str, path: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Returns the operation that a request is for, and the values in its path, as a router finds them."""
    parts = path.split("/")
    best: List[Tuple[int, Dict[str, Any], Dict[str, str]]] = []
    for operation in OPERATIONS.values():
        pattern = operation["path"].split("/")
        if operation["method"] != method or len(pattern) != len(parts):
            continue
        values = {each[1:-1]: unquote(part) for each, part in zip(pattern, parts) if each.startswith("{")}
        if all(each.startswith("{") or each == part for each, part in zip(pattern, parts)):
            best.append((len(values), operation, values))
    _, operation, values = min(best, key=lambda each: each[0])
    return operation, values


def python_value(hint: Any, value: Any) -> Any:
    """Returns what a caller passes for a value of JSON."""
    if typing.get_origin(hint) is typing.Union:
        return python_value(typing.get_args(hint)[0], value)
    if isinstance(value, list):
        return tuple(python_value(typing.get_args(hint)[0], each) for each in value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        slots = _wire.slots_of(hint)
        return hint(**{slot.attribute: python_value(slot.hint, value[slot.name]) for slot in slots if slot.name in value})
    return value


def arguments_of(verb: "_wire.Verb[object]", body: Dict[str, Any]) -> Dict[str, Any]:
    slots = () if verb.request is None else _wire.slots_of(verb.request)
    return {slot.attribute: python_value(slot.hint, body[slot.name]) for slot in slots if slot.name in body}


class EachVerb(unittest.TestCase):
    fake: Fake

    @classmethod
    def setUpClass(cls) -> None:
        cls.fake = Fake(lambda request: None)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.fake.__exit__()

    def call(self, name: str, is_full: bool, extra: bool) -> Any:
        """Calls a verb, compares the request with the document, and returns the answer and what it was made of."""
        verb = dolmen.VERBS[name]
        operation = OPERATIONS[verb.name]
        answer = example(answer_schema(operation), is_full, extra)
        sent: Dict[str, Any] = {}

        def handle(request: Handler) -> None:
            parts = urlsplit(request.path)
            found, values = operation_of(request.command, parts.path)
            sent.update(operation=found["operationId"], values=values, body=request.body, query=parse_qs(parts.query))
            request.answer(200, json.dumps(answer).encode())

        body = example(request_schema(operation), is_full)
        path = [example(each["schema"], is_full) for each in operation.get("parameters", []) if each["in"] == "path"]
        self.fake.begin(handle)
        client = dolmen.Client.unix(self.fake.path)
        got = getattr(client, name)(*path, **arguments_of(verb, body))
        self.assertEqual(len(self.fake.requests), 1)
        self.assertEqual(sent["operation"], verb.name)
        self.assertEqual(list(sent["values"].values()), [str(each) for each in path])
        if verb.is_change:
            self.assertEqual(json.loads(sent["body"]), body)
            self.assertEqual(problems(request_schema(operation), body, name), [])
        else:
            self.assertEqual(sent["body"], b"")
            self.assertEqual(sent["query"], {key: [str(value)] for key, value in body.items()})
        return got, answer

    def test_the_table_has_each_verb_of_the_document(self) -> None:
        """Scenario: the table and the document. Expected: the same verbs, methods, paths and facts; each has a method."""
        self.assertEqual({verb.name for verb in dolmen.VERBS.values()}, set(OPERATIONS))
        for name, verb in dolmen.VERBS.items():
            operation = OPERATIONS[verb.name]
            self.assertEqual((verb.method, verb.path), (operation["method"], operation["path"]))
            facts = {"role": verb.role, "idempotent": verb.is_idempotent, "job": verb.has_job}
            self.assertEqual({**facts, "error_codes": list(verb.error_codes)}, operation["x-dolmen"])
            self.assertTrue(getattr(dolmen.Client, name).__doc__)

    def test_each_verb_sends_what_the_document_says_with_all_arguments(self) -> None:
        """Scenario: each method with all arguments. Expected: the request of the document, the answer in its type with each field."""
        for name in dolmen.VERBS:
            with self.subTest(name):
                got, answer = self.call(name, is_full=True, extra=False)
                self.compare(got, answer, name)

    def test_each_verb_needs_the_required_arguments_alone(self) -> None:
        """Scenario: each method with required arguments, and the shortest answer. Expected: the same; what is absent is None or empty."""
        for name in dolmen.VERBS:
            with self.subTest(name):
                got, answer = self.call(name, is_full=False, extra=False)
                self.compare(got, answer, name)

    def test_fields_of_a_later_daemon_are_kept(self) -> None:
        """Scenario: each object of an answer has one more field. Expected: it is read as before, and the field is in `extra`."""
        for name in dolmen.VERBS:
            with self.subTest(name):
                got, answer = self.call(name, is_full=True, extra=True)
                self.assertEqual(got.extra, {"of_a_later_daemon": {"deep": [1, None]}})
                self.compare(got, answer, name)

    def compare(self, got: Any, answer: Any, place: str) -> None:
        """Compares a value of Python with the JSON that it was read from, field by field."""
        if dataclasses.is_dataclass(got):
            self.assertIsInstance(answer, dict)
            for each in dataclasses.fields(got):
                name = each.name[:-1] if keyword.iskeyword(each.name[:-1]) else each.name
                value = getattr(got, each.name)
                if name in answer:
                    self.compare(value, answer[name], f"{place}.{name}")
                elif name == "extra":
                    self.assertEqual(value, {k: v for k, v in answer.items() if k == "of_a_later_daemon"}, place)
                else:
                    self.assertIn(value, (None, []), f"{place}.{name}")
        elif isinstance(got, list):
            self.assertEqual(len(got), len(answer), place)
            for mine, theirs in zip(got, answer):
                self.compare(mine, theirs, place + "[]")
        else:
            self.assertEqual(got, answer, place)


if __name__ == "__main__":
    unittest.main()
