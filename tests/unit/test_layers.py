"""The dependency rule, read from the imports: tasks -> migration -> stages -> engines -> base."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
ENGINES = frozenset(
    [
        "audit",
        "sizing",
        "prices",
        "provision",
        "configure",
        "images",
        "transfer",
        "load",
        "dns",
        "observe",
        "report",
        "toolchain",
    ]
)
STAGES = frozenset(["audit", "size", "build", "poc", "load", "migrate", "scale", "switch", "watch"])
# Whatever is neither base nor engine nor in stages/ stands above the stages, with migration. The ledger is for
# stages and what is above them.
BASE = frozenset(
    [
        "artifacts",
        "profile",
        "profile_schema",
        "yamlsource",
        "declaration",
        "modelfile",
        "errors",
        "lock",
        "process",
        "ssh",
        "secret",
        "progress",
        "tree",
    ]
)
ADAPTERS = frozenset(
    [
        "pulumi",
        "ansible",
        "ansible_runner",
        "boto3",
        "botocore",
        "requests",
        "aiohttp",
        "octodns",
        "octodns_powerdns",
        "grpc",
        "httpx",
        "urllib3",
    ]
)
PURE = frozenset({"profile", "artifacts", "sizing"})
# The report joins what others found: it may read what flows and nothing that does.
REPORT_MAY = frozenset({"artifacts"})


def violations(repo: Path) -> list[str]:
    """Every import in inferlift/ and tasks.py that goes against the rule, as "file:line what"."""
    found = []
    package = repo / "inferlift"
    for file in sorted(package.rglob("*.py")):
        module = file.relative_to(package).with_suffix("").parts
        part = module[0]
        for line, name in imports(file, repo):
            if why := forbidden(part, module, name):
                found.append(f"{file.relative_to(repo)}:{line} imports {name}: {why}")
    tasks = repo / "tasks.py"
    if tasks.exists():
        for line, name in imports(tasks, repo, top_level_only=True):
            root = name.split(".")[0]
            if root != "invoke" and root not in sys.stdlib_module_names:
                found.append(f"tasks.py:{line} imports {name}: only stdlib and invoke at module level")
    return found


def forbidden(part: str, module: tuple[str, ...], name: str) -> str | None:
    """Why this part may not import that name; None when it may."""
    root, *rest = name.split(".")
    if root in ADAPTERS and part in PURE:
        return f"{part} imports no adapter"
    if root == "tasks":
        return "nothing imports tasks"
    if root != "inferlift" or not rest:
        return None
    other = rest[0]
    above = other not in BASE | ENGINES | {"stages", "__version__"}
    if part in ENGINES and other != part:
        if other in ENGINES or other == "stages" or above:
            return "an engine imports no other engine, no stage and nothing above"
        if part == "report" and other not in REPORT_MAY:
            return "the report imports artifacts only"
    if part == "stages" and above and other != "ledger":
        return "a stage imports nothing above it"
    if part == other == "stages" and {*module[1:2], *rest[1:2]} <= STAGES:
        return "a stage imports no other stage"
    if part in BASE | {"ledger"} and (other in ENGINES or other == "stages" or above) and other != part:
        return "a base module imports nothing above it"
    return None


def imports(file: Path, repo: Path, *, top_level_only: bool = False) -> list[tuple[int, str]]:
    """Line and absolute dotted name of each import; names imported from a package count as its members."""
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    inside = file.relative_to(repo).with_suffix("").parts
    package = list(inside[:-1])
    found: list[tuple[int, str]] = []
    for node in nodes(tree, top_level_only=top_level_only):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def nodes(tree: ast.Module, *, top_level_only: bool) -> list[ast.AST]:
    """All nodes, or those run on import: bodies of functions and of `if TYPE_CHECKING` left out."""
    if not top_level_only:
        return list(ast.walk(tree))
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        found.append(node)
        waiting += list(ast.iter_child_nodes(node))
    return found


def test_the_code_keeps_the_direction() -> None:
    assert violations(REPO) == []


@pytest.mark.parametrize(
    ("file", "source", "said"),
    [
        ("inferlift/dns/zone.py", "from inferlift.load import run", "no other engine"),
        ("inferlift/dns/zone.py", "from inferlift import load", "no other engine"),
        ("inferlift/dns/zone.py", "from .. import load", "no other engine"),
        ("inferlift/dns/zone.py", "from ..load.run import x", "no other engine"),
        ("inferlift/dns/__init__.py", "from ..stages import switch", "no stage"),
        ("inferlift/dns/zone.py", "def f():\n    import inferlift.stages.switch", "no stage"),
        ("inferlift/dns/zone.py", "import inferlift.ledger", "nothing above"),
        ("inferlift/dns/zone.py", "import inferlift.something_new", "nothing above"),
        ("inferlift/sizing/need.py", "import inferlift.prices.table", "no other engine"),
        ("inferlift/sizing/need.py", "def f():\n    import requests", "no adapter"),
        ("inferlift/artifacts/__init__.py", "from pulumi.automation import Stack", "no adapter"),
        ("inferlift/profile.py", "import inferlift.stages.audit", "base module"),
        ("inferlift/ssh.py", "from inferlift import transfer", "base module"),
        ("inferlift/ledger.py", "from inferlift.stages.base import Stage", "base module"),
        ("inferlift/report/page.py", "from inferlift import ssh", "artifacts only"),
        ("inferlift/stages/load.py", "from inferlift.stages import scale", "no other stage"),
        ("inferlift/stages/load.py", "from . import scale", "no other stage"),
        ("inferlift/stages/load.py", "from inferlift.migration import Migration", "nothing above"),
        ("tasks.py", "from inferlift import migration", "stdlib and invoke"),
        ("tasks.py", "if True:\n    import yaml", "stdlib and invoke"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str, said: str) -> None:
    plant(tmp_path, file, source)
    found = violations(tmp_path)
    assert len(found) == 1, found
    assert said in found[0]
    assert found[0].startswith(file)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("inferlift/stages/load.py", "from inferlift import dns\nfrom inferlift.load import run\nimport aiohttp"),
        ("inferlift/stages/load.py", "from inferlift.stages.base import Stage\nfrom inferlift.ledger import Intent"),
        ("inferlift/stages/__init__.py", "from inferlift.stages import load"),
        ("inferlift/dns/zone.py", "from inferlift.dns.plan import Plan\nfrom . import plan\nimport inferlift.errors"),
        ("inferlift/report/page.py", "from inferlift.artifacts import Watch\nfrom inferlift.report import plots"),
        ("inferlift/migration.py", "from inferlift.stages import load\nfrom inferlift import ledger"),
        ("tasks.py", "import sys\nfrom invoke import task\ndef deploy(c):\n    from inferlift import migration"),
    ],
)
def test_what_is_allowed_stays_allowed(tmp_path: Path, file: str, source: str) -> None:
    plant(tmp_path, file, source)
    assert violations(tmp_path) == []


def plant(root: Path, file: str, source: str) -> None:
    target = root / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source + "\n", encoding="utf-8")
