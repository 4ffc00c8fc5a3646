"""The Pulumi engine and its Python language plugin: found on PATH, installed, or built from their Go modules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from functools import cache as once
from pathlib import Path

from inferlift.errors import InferliftError, Retryable
from inferlift.process import run
from inferlift.toolchain.python_packages import go_from_wheel
from inferlift.toolchain.store import Say, cache, locked, place, run_logged, workshop
from inferlift.toolchain.table import HERE, Spec, Tool, catalogue, version_tuple

PLUGIN = "pulumi-language-python"
EXEC_SCRIPT = "pulumi-language-python-exec"
INSTALLER_CONNECT_S = 4.0
# From 1.21 on, Go fetches the toolchain that a module asks for by itself.
GO_AT_LEAST = (1, 21)
GO_WANTED = (1, 26, 6)


def pulumi_bin() -> Path:
    """The folder to put first on PATH: holds (once made) pulumi, its Python plugin and the plugin's exec script."""
    on_path = _on_path()
    return on_path[0] if on_path else cache() / "pulumi" / catalogue()["pulumi"].version / "bin"


def look(spec: Spec) -> Tool:
    on_path = _on_path()
    if on_path:
        return spec.tool(present=True, version=on_path[1], detail=f"{on_path[0] / 'pulumi'} (found on PATH)")
    program = pulumi_bin() / "pulumi"
    return spec.tool(present=program.exists(), version=spec.version, detail=str(program))


def look_plugin(spec: Spec) -> Tool:
    on_path = _on_path()
    files = [pulumi_bin() / PLUGIN, pulumi_bin() / EXEC_SCRIPT]
    version = on_path[1] if on_path else spec.version
    return spec.tool(present=all(f.exists() for f in files), version=version, detail=str(files[0]))


def make(spec: Spec, say: Say) -> None:
    """Bring the engine: the official installer where it is reachable, else a build. Raises Retryable, CheckFailed."""
    target = pulumi_bin()
    with locked(spec.name, say):
        if (target / "pulumi").exists():
            return
        with workshop(spec.name) as work:
            if not _by_installer(spec, work, target, say):
                _by_build(spec, work, target, say)


def make_plugin(spec: Spec, say: Say) -> None:
    """Build the language plugin beside the engine and put its exec script there."""
    target = pulumi_bin()
    with locked(spec.name, say):
        if (target / PLUGIN).exists() and (target / EXEC_SCRIPT).exists():
            return
        with workshop(spec.name) as work:
            go, env = _go(say)
            module = work / "module"
            shutil.copytree(HERE / "go" / "language", module)
            package = "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"
            argv = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(work / PLUGIN), package]
            run_logged(spec.name, argv, timeout_s=1200, env=env, cwd=module)
            shutil.copy(_exec_script(spec, go, env, module), work / EXEC_SCRIPT)
            (work / EXEC_SCRIPT).chmod(0o755)
            place(work / EXEC_SCRIPT, target / EXEC_SCRIPT)
            place(work / PLUGIN, target / PLUGIN)


@once
def _on_path() -> tuple[Path, str] | None:
    """Folder and version of a usable engine on PATH: new enough, its language plugin beside it, not our own."""
    found = shutil.which("pulumi")
    if not found:
        return None
    folder = Path(found).resolve().parent
    if folder.is_relative_to(cache().resolve()) or not all((folder / f).exists() for f in (PLUGIN, EXEC_SCRIPT)):
        return None
    try:
        env = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "1"}
        said = run([found, "version"], timeout_s=20, env=env, check=False).stdout.strip()
    except InferliftError:
        return None
    new_enough = version_tuple(said) >= version_tuple(catalogue()["pulumi"].at_least)
    return (folder, said.removeprefix("v")) if new_enough else None


def _by_installer(spec: Spec, work: Path, target: Path, say: Say) -> bool:
    """Whether the official installer could be reached and brought the engine."""
    try:
        with urllib.request.urlopen(spec.installer, timeout=INSTALLER_CONNECT_S) as answer:  # noqa: S310 (https, from our table)
            script = answer.read()
    except (urllib.error.URLError, OSError):
        return False
    if not script.startswith(b"#!"):  # a proxy's own page
        return False
    say(f"pulumi: installing {spec.version} with Pulumi's installer")
    (work / "install.sh").write_bytes(script)
    argv = ["sh", str(work / "install.sh"), "--version", spec.version, "--install-root", str(work), "--no-edit-path"]
    try:
        run_logged(spec.name, argv, timeout_s=600)
    except Retryable as error:
        say(f"pulumi: the installer did not succeed ({error.what}); building it instead")
        return False
    brought = sorted((work / "bin").glob("pulumi*"), key=lambda f: f.name == "pulumi")
    if not brought or brought[-1].name != "pulumi":
        return False
    for file in brought:  # the engine last: its presence stands for all
        place(file, target / file.name)
    return True


def _by_build(spec: Spec, work: Path, target: Path, say: Say) -> None:
    go, env = _go(say)
    say(f"pulumi: building {spec.version} from its Go module, about 5 minutes on 2 cores the first time")
    module = work / "module"
    shutil.copytree(HERE / "go" / "engine", module)
    stamp = f"-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{spec.version}"
    package = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
    argv = [go, "build", "-trimpath", "-ldflags", stamp, "-o", str(work / "pulumi"), package]
    run_logged(spec.name, argv, timeout_s=3600, env=env, cwd=module)
    place(work / "pulumi", target / "pulumi")


def _exec_script(spec: Spec, go: str, env: dict[str, str], module: Path) -> Path:
    """The script in the SDK module of the engine's version; the module's checksum is pinned in tools.yaml."""
    wanted = f"github.com/pulumi/pulumi/sdk/v3@v{spec.exec_version}"
    for _ in range(3):
        done = subprocess.run(
            [go, "mod", "download", "-json", wanted],
            cwd=module, env=env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            break
        time.sleep(2)
    else:
        raise Retryable(
            f"{wanted} could not be fetched",
            why=(done.stdout + done.stderr).strip()[-300:],
            next_command="check that the Go module proxy is reachable, then run the same command again",
        )
    said = json.loads(done.stdout)
    if said["Sum"] != spec.exec_sum:
        raise Retryable(
            f"{wanted} has another checksum than tools.yaml",
            why=f"expected {spec.exec_sum}, got {said['Sum']}",
            next_command="find out who serves a changed module (GOPROXY), then run the same command again",
        )
    return Path(said["Dir"]) / "python" / "cmd" / EXEC_SCRIPT


def _go(say: Say) -> tuple[str, dict[str, str]]:
    """A Go program that can build the engine, and the environment to build in."""
    env = {k: v for k, v in os.environ.items() if k not in ("GOFLAGS", "GOWORK", "GOOS", "GOARCH")}
    # No C compiler is asked for, and the result does not depend on one.
    env |= {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    if not env.get("HOME"):
        env |= {"GOPATH": str(cache() / "gopath"), "GOCACHE": str(cache() / "gobuild")}
    found = shutil.which("go")
    version = _go_version(found) if found else ()
    if found and version >= GO_AT_LEAST:
        if version < GO_WANTED:
            env["GOTOOLCHAIN"] = "auto"
        return found, env
    env["GOTOOLCHAIN"] = "local"
    env.pop("GOROOT", None)
    return str(go_from_wheel(say)), env


def _go_version(program: str) -> tuple[int, ...]:
    said = run([program, "version"], timeout_s=30, check=False, env={**os.environ, "GOTOOLCHAIN": "local"}).stdout
    match = re.search(r"go(\d+(?:\.\d+)*)", said)
    return version_tuple(match[1]) if match else ()
