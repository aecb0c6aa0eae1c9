"""The generator: it writes what is there, notices a changed document, and refuses what it does not know."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, Tuple

from .examples import DOCUMENT

GENERATE = Path(__file__).resolve().parent.parent / "generate.py"


class Generate(unittest.TestCase):
    def check(self, document: Dict[str, Any]) -> Tuple[int, str]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(document, file)
            file.flush()
            words = [sys.executable, "-B", str(GENERATE), "--check", file.name]
            ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return ended.returncode, ended.stdout + ended.stderr

    def test_the_files_are_those_of_the_document(self) -> None:
        """Scenario: the document of the repository. Expected: no difference."""
        self.assertEqual(self.check(DOCUMENT), (0, ""))

    def test_a_changed_document_is_a_difference(self) -> None:
        """Scenario: a new field, another role, a new verb. Expected: code 1, and the difference is shown, each time."""
        pools = "/v1/pools"
        field, role, verb = (copy.deepcopy(DOCUMENT) for _ in range(3))
        field["components"]["schemas"]["Pool"]["properties"]["color"] = {"type": "string"}
        role["paths"][pools]["get"]["x-dolmen"]["role"] = "admin"
        verb["paths"]["/v1/moons"] = {"get": {**verb["paths"][pools]["get"], "operationId": "ListMoons"}}
        for document, words in ((field, "color: Optional[str]"), (role, 'role="admin"'), (verb, "def list_moons")):
            code, text = self.check(document)
            self.assertEqual(code, 1)
            self.assertIn(words, text)

    def test_what_the_generator_does_not_know_is_refused_by_name(self) -> None:
        """Scenario: anyOf, a reference into nothing, missing facts, a name twice. Expected: code 2, and the place is named."""
        union, nowhere, facts, twice = (copy.deepcopy(DOCUMENT) for _ in range(4))
        union["components"]["schemas"]["Pool"]["properties"]["name"] = {"anyOf": []}
        nowhere["components"]["schemas"]["Pool"]["properties"]["name"] = {"$ref": "#/components/schemas/Nowhere"}
        del facts["paths"]["/v1/pools"]["get"]["x-dolmen"]["role"]
        twice["components"]["schemas"]["RenameSpace"]["properties"]["pool"] = {"type": "string"}
        cases = ((union, "Pool.name: anyOf"), (nowhere, "Nowhere"), (facts, "ListPools: x-dolmen lacks 'role'"), (twice, "RenameSpace: two"))
        for document, words in cases:
            code, text = self.check(document)
            self.assertEqual(code, 2, text)
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
