"""Gates as JUnit XML: a suite an endpoint, a case a gate. Undecided is an error, so that no CI takes it for a pass."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from inferlift.load.comparison import Found

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(path: Path, found: Sequence[Found]) -> None:
    suites = ET.Element("testsuites", name="inferlift load")
    for f in found:
        counts = {kind: sum(g.verdict == kind for g in f.gates) for kind in ("fail", "inconclusive")}
        suite = ET.SubElement(
            suites, "testsuite", name=f.url, tests=str(len(f.gates)), failures=str(counts["fail"]),
            errors=str(counts["inconclusive"]), skipped="0", time=f"{f.run.seconds:.3f}",
            timestamp=f.run.started.isoformat(),
        )  # fmt: skip
        for gate in f.gates:
            case = ET.SubElement(suite, "testcase", classname=f.url, name=gate.name, time="0")
            why = _NOT_XML.sub("?", gate.why)
            if gate.verdict == "pass":
                ET.SubElement(case, "system-out").text = why
            else:
                kind = "failure" if gate.verdict == "fail" else "error"
                ET.SubElement(case, kind, type=gate.verdict, message=why).text = why
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.indent(suites)
    ET.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)
