"""Scripts that were run on TensorStore, run on the service: what a step may do, what it reads and what it leaves."""

from __future__ import annotations

import base64
from typing import Any, Final

import httpx
import numpy as np
import pytest

from hyperslab import RemoteArray
from hyperslab.errors import HyperslabError
from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, Node
from tests.conformance.test_slices import index
from tests.conformance.vectors import Case, case_id, cases

_CASES = [case for case in cases("tensorstore") if deviation("tensorstore", case["id"]) is None]
_STORE_OF: Final = {
    "fill_missing_data_reads": "strict",
    "store_data_equal_to_fill_value": "explicit",
    "metadata_key": "renamed",
    "assume_metadata": "assumed",
}
"""The store whose configuration is what an option of TensorStore's spec asks for."""
_DTYPES: Final = {f"{kind}int{bits}": f"<{kind or 'i'}{bits // 8}" for kind in ("", "u") for bits in (16, 32, 64)} | {
    "int8": "|i1",
    "uint8": "|u1",
    "float16": "<f2",
    "float32": "<f4",
    "complex64": "<c8",
    "complex128": "<c16",
}


class Refused(Exception):
    """An answer that is a problem."""


def store_of(case: Case) -> str:
    for step in case["steps"]:
        named = [store for option, store in _STORE_OF.items() if option in step]
        if named:
            return named[0]
    rechecks = [step[name] for step in case["steps"] for name in step if name.startswith("recheck_cached_")]
    reopened = "while open: by default" in case["name"]
    return "trusting" if reopened or any(check is False for check in rechecks) else "data"


class Script:
    """Runs the steps of a case; ``handles`` are the arrays that were opened, by name."""

    def __init__(self, service: Conformance, case: Case) -> None:
        store = store_of(case)
        self.service = service
        self.node = (
            Node(service, "assumed", service.folder / "assumed") if store == "assumed" else service.node(store=store)
        )
        for key, content in (case.get("files") or {}).items():
            self.node.write(key, content)
        self.handles: dict[str, RemoteArray] = {}
        self.key = "zarray" if store == "renamed" else ".zarray"

    def run(self, step: dict[str, Any]) -> dict[str, Any]:
        """What the log of TensorStore calls the outcome of a step, as far as ours has the same words."""
        found: dict[str, Any] = getattr(self, f"do_{step['do']}")(step) or {}
        return found

    # --- steps ---------------------------------------------------------------------------------------------------

    def do_open(self, step: dict[str, Any]) -> dict[str, Any]:
        node = self.node
        if path := step.get("kvstore", {}).get("path"):
            node = node.below(path.rstrip("/"))
        if step.get("create"):
            mode = {"mode": "replace", "foreign": "true"} if step.get("delete_existing") else {"mode": "open"}
            accepted(node.put(json=definition(step), params=mode))
        elif (constraints := definition(step)) and "assume_metadata" not in step:
            stored = node.document(self.key) if "metadata" in step or "schema" in step else {}
            given = {name: stored[name] for name in ("shape", "dtype") if name in stored}
            accepted(node.put(json={**given, **constraints}, params={"mode": "open"}))
        if "assume_metadata" in step and "dtype" not in step["metadata"]:
            node = node.below("too/little")
        field = step.get("field")
        document = accepted(node.get(**({"field": field} if field else {}))).json()
        if field is None and len(document.get("fields") or ()) == 1:
            field = document["fields"][0]["name"]
        if document["kind"] != "array":
            raise Refused(document)
        self.handles[step.get("as", "s")] = node.remote(field)
        schema = document["schema"]
        tops = [top[0] if isinstance(top, list) else top for top in schema["domain"]["exclusive_max"]]
        return {"dtype": schema["dtype"], "shape": tops}

    def do_read(self, step: dict[str, Any]) -> dict[str, Any]:
        values = np.asarray(self.array(step)[key_of(step)])
        return {"values": values.tolist() if values.ndim else [values.item()], "shape": list(values.shape)}

    def do_write(self, step: dict[str, Any]) -> None:
        array = self.array(step)
        if step.get("on") == "other":  # another program, behind the service's back
            self.write_elsewhere(step)
        else:
            array[key_of(step)] = np.array(step["value"], array.dtype)

    def do_slice(self, step: dict[str, Any]) -> None:
        self.handles[step["as"]] = self.node.remote()  # all slices are of the whole array, with the bounds of now

    def do_resize(self, step: dict[str, Any]) -> dict[str, Any]:
        if step.get("on") == "other":
            self.node.write(self.key, {**self.node.document(self.key), "shape": step["shape"]})
            return {"shape": step["shape"]}
        array = self.array(step)
        array.resize(step["shape"])
        return {"shape": list(array.shape)}

    def do_resolve(self, step: dict[str, Any]) -> dict[str, Any]:
        array = self.array(step)
        array.refresh()
        return {"shape": list(array.shape)}

    def do_list(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"keys": self.node.keys()}

    def do_metadata(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"document": self.node.document(self.key)}

    def do_put(self, step: dict[str, Any]) -> None:
        self.node.write(step["key"], step["value"])

    def do_put_hex(self, step: dict[str, Any]) -> None:
        self.node.write(step["key"], bytes.fromhex(step["hex"]))

    def do_delete(self, step: dict[str, Any]) -> None:
        (self.node.folder / step["key"]).unlink()

    # --- helpers -------------------------------------------------------------------------------------------------

    def array(self, step: dict[str, Any]) -> RemoteArray:
        """A new look at the array for each step, but for a view, which keeps the bounds that it had."""
        known = self.handles[step.get("on", "s")]
        if step.get("on") != "v":
            known.refresh()
        return known

    def write_elsewhere(self, step: dict[str, Any]) -> None:
        """The scripts write single items of uncompressed bytes."""
        (i,) = step["sel"]
        path = self.node.folder / str(i // 2)
        data = bytearray(path.read_bytes() if path.exists() else bytes(2))
        data[i % 2] = step["value"]
        self.node.write(path.name, bytes(data))


def key_of(step: dict[str, Any]) -> Any:
    return tuple(index(item) for item in step["sel"]) or ...


def definition(step: dict[str, Any]) -> dict[str, Any]:
    """The members of a document that a spec asks for."""
    members: dict[str, Any] = {name: step[name] for name in ("schema", "rank") if name in step}
    if "dtype" in step and "dtype" not in step.get("metadata", {}):
        members["dtype"] = _DTYPES.get(step["dtype"], step["dtype"])
    members |= step.get("metadata", {})
    return {"kind": "array", **members} if step.get("create") or members else {}


def accepted(answer: httpx.Response) -> httpx.Response:
    if not answer.is_success:
        raise Refused(answer.text)
    return answer


@pytest.mark.parametrize("case", _CASES, ids=case_id)
def test_a_script_goes_as_in_tensorstore(service: Conformance, case: Case) -> None:
    script = Script(service, case)
    for number, (step, expected) in enumerate(zip(case["steps"], case["log"], strict=True)):
        if not expected["ok"]:
            with pytest.raises((Refused, HyperslabError, FileNotFoundError, ValueError)):
                script.run(step)
            continue
        found = script.run(step)
        for name in expected.keys() & found.keys():
            assert comparable(name, found[name]) == comparable(name, expected[name]), (number, step)


def comparable(name: str, value: Any) -> Any:
    """Chunks by key in hex; documents without what each library chooses by itself: the default codec and fill value."""
    if name == "keys":
        return {
            key: text.hex() if isinstance(text, bytes) else text for key, text in value.items() if not is_document(key)
        }
    if name == "document":
        return {key: member for key, member in value.items() if key not in ("compressor", "fill_value")}
    return np.asarray(value).reshape(-1).tolist() if name == "values" else value


def is_document(key: str) -> bool:
    return key.rpartition("/")[2] in (".zarray", "zarray", ".zgroup")


def test_the_example_of_the_drivers_documentation_works(service: Conformance) -> None:
    """x is [[1, 2, 3], [4, 5, 6]] and y is 10 to 14 where nothing is stored."""
    dtype = [["x", "<u2", [2, 3]], ["y", "<f4", [5]]]
    fill = np.array(([[1, 2, 3], [4, 5, 6]], [10, 11, 12, 13, 14]), [("x", "<u2", (2, 3)), ("y", "<f4", (5,))])
    text = base64.b64encode(fill.tobytes()).decode()
    node = service.array(dtype=dtype, shape=[10, 20], chunks=[5, 5], fill_value=text)

    assert node.values(field="x", select="9,19").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert node.remote()["y", 9, 19].tolist() == [10, 11, 12, 13, 14]
    schema = node.get(field="x").json()["schema"]
    assert (schema["dtype"], schema["rank"], schema["fill_value"]) == ("uint16", 4, [[1, 2, 3], [4, 5, 6]])
    assert schema["domain"]["exclusive_max"] == [[10], [20], 2, 3]
