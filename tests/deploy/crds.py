"""Checks the chart's custom resources against their definitions, and keeps which fields were checked. By hand.

``python tests/deploy/crds.py FOLDER``: FOLDER has the definitions as their projects publish them, ``PROJECT-VERSION.yaml``
(``jobset-0.12.0.yaml``; several may be in one file). A field that no definition has is an error, as for ``kubectl --validate``;
rules in CEL are not evaluated. The suite has the list (``tests/fixtures/crd_fields.json``) and no definition: an object with a
field that is not in it was never checked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from chart import all_objects, fields

LIST = Path(__file__).resolve().parents[1] / "fixtures" / "crd_fields.json"


class _Loader(yaml.CSafeLoader):
    """YAML in which ``=`` is a text, as in the enumerations of the Prometheus operator."""


_Loader.add_constructor("tag:yaml.org,2002:value", _Loader.construct_yaml_str)


def read_definitions(folder: Path) -> dict[tuple[str, str], tuple[str, Any]]:
    """Return the definitions by version and kind: the file's name and the schema."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for definition in filter(None, yaml.load_all(path.read_text(), _Loader)):
            spec = definition["spec"]
            for version in spec["versions"]:
                key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                found[key] = (path.stem, close(version["schema"]["openAPIV3Schema"]))
    return found


def close(schema: Any) -> Any:
    """Return a structural schema as JSON Schema: objects have no other fields, and the API server's own words are gone."""
    if isinstance(schema, list):
        return [close(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = {key: close(value) for key, value in schema.items() if key != "format"}
    if isinstance(closed.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed


def main(folder: Path) -> None:
    """Validate everything, and write the list."""
    definitions = read_definitions(folder)
    checked: dict[str, dict[str, Any]] = {}
    for document in all_objects():
        key = (document["apiVersion"], document["kind"])
        if key not in definitions:
            continue
        source, schema = definitions[key]
        schema = {**schema, "properties": {**schema["properties"], "metadata": {"type": "object"}}}
        jsonschema.Draft7Validator(schema).validate(document)
        entry = checked.setdefault("/".join(key), {"checked": source, "fields": set()})
        entry["fields"] |= set(fields({"spec": document["spec"]}))
    kept = {key: {**entry, "fields": sorted(entry["fields"])} for key, entry in sorted(checked.items())}
    LIST.write_text(json.dumps(kept, indent=2) + "\n")
    for key, entry in kept.items():
        print(f"{key}: {len(entry['fields'])} fields, {entry['checked']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
