"""The package: what is in it, that a wheel and an editable install work, and that importing it is cheap."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tilec import pipeline

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROGRAM = "kernel f(X[N]) -> Y[i]:\n    Y = X[i] + 1\n"
FOLDERS = {
    "tilec": "tilec",
    "grammar": "tilec.grammar",
    "passes": "tilec.passes",
    "backends": "tilec.backends",
}


def packages_on_disk() -> set[str]:
    found: set[str] = set()
    for top, package in FOLDERS.items():
        for folder, below, files in os.walk(ROOT / top):
            below[:] = [b for b in below if not Path(folder, b).is_symlink() and b != "__pycache__"]
            if any(f.endswith(".py") for f in files):
                inner = Path(folder).relative_to(ROOT / top).parts
                found.add(".".join((package, *inner)))
    return found


def test_packages_are_the_folders_on_disk():
    assert set(SETTINGS["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_links_point_at_the_folders():
    for name in ("grammar", "passes", "backends"):
        link = ROOT / "tilec" / name
        if not link.is_symlink():
            pytest.skip("this checkout has no links")
        assert os.readlink(link) == f"../{name}"


@pytest.mark.parametrize("name", pipeline.PASSES)
def test_pass_has_function_docstring_and_fixture(name):
    module = pipeline.module(name)
    assert callable(getattr(module, name))
    assert "Requires" in module.__doc__
    assert (ROOT / "tests" / "passes" / f"{name}.ir").is_file()


def modules(folder: str) -> set[str]:
    return {p.stem for p in (ROOT / folder).glob("*.py") if not p.stem.startswith("__")}


def test_the_architecture_says_what_is_where():
    """Every module has its place in docs/architecture.md, and the tables there name no other."""
    text = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## What is where")[1]
    )
    folders = ["tilec", "passes", "backends/reference", "backends/cpu", "backends/cuda"]
    folders += [f"backends/cuda/{emitter}" for emitter in ("simt", "hopper", "ampere")]
    places = [*(text.index(f"`{folder}/`") for folder in folders), len(text)]
    for folder, at, end in zip(folders, places, places[1:], strict=False):
        missing = modules(folder) - set(re.findall(r"`(\w+)`", text[at:end]))
        assert not missing, f"{folder}: {sorted(missing)} have no line"
        rows = re.findall(r"^\| (`.*?) \|", text[at:end], re.MULTILINE)
        gone = {m for row in rows for m in re.findall(r"`(\w+)`", row)} - modules(folder)
        assert not gone, f"{folder}: {sorted(gone)} are no modules"


@pytest.mark.parametrize("folder", ["tuning", "page"])
def test_the_architecture_names_what_is_in_a_folder(folder):
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| `{folder}/` \|.*$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == modules(f"tilec/{folder}")


# ---- importing


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints, away from the checkout's folder unless PYTHONPATH says otherwise."""
    env = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy():
    heavy = ("numpy", "llvmlite", "lark", "networkx", "typer")
    code = f"import sys, tilec; print(*(m for m in {heavy} if m in sys.modules))"
    assert not python(code).split()


def test_the_text_side_needs_no_numpy():
    modules = ["ir", "text", "reader", "verify", "pipeline", "check", "interval"]
    modules += [f"passes.{p}" for p in pipeline.PASSES]
    imports = "; ".join(f"import tilec.{m}" for m in modules)
    heavy = "('numpy', 'llvmlite', 'torch')"
    assert (
        python(f"import sys; {imports}; print([m for m in {heavy} if m in sys.modules])") == "[]\n"
    )


def test_help_is_fast_and_light():
    code = (
        "import sys, time; t = time.perf_counter(); import tilec.cli, contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out: status = tilec.cli.main(['--help'])\n"
        "print(status, 'tile compiler' in out.getvalue(), 'numpy' in sys.modules, 'llvmlite' in sys.modules)"
    )
    assert python(code) == "0 True False False\n"


# ---- packaging


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what is packaged, without the links, as a system without them would have it."""
    if not _builds():
        pytest.skip("setuptools 77 or newer is not installed")
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    hidden = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=hidden)
    for name in ("grammar", "passes", "backends"):
        link = copy / "tilec" / name
        if link.is_symlink():
            link.unlink()
    return copy


def _builds() -> bool:
    try:
        from importlib.metadata import version

        return int(version("setuptools").split(".")[0]) >= 77
    except ImportError:
        return False


def build(kind: str, checkout: Path, out: Path) -> Path:
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def test_wheel_holds_the_package_and_runs(checkout, tmp_path):
    wheel = build("wheel", checkout, tmp_path)
    with zipfile.ZipFile(wheel) as z:
        names = [n for n in z.namelist() if ".dist-info/" not in n]
        z.extractall(tmp_path / "site")
    assert len(names) == len(set(names))
    assert {n.split("/")[0] for n in names} == {"tilec"}
    expected = {f"tilec/{p.relative_to(ROOT / 'tilec')}" for p in (ROOT / "tilec").glob("*.py")}
    for top in ("grammar", "passes", "backends"):
        expected |= {f"tilec/{p.relative_to(ROOT)}" for p in (ROOT / top).rglob("*.py")}
        expected |= {f"tilec/{p.relative_to(ROOT)}" for p in (ROOT / top).rglob("*.lark")}
        expected |= {f"tilec/{p.relative_to(ROOT)}" for p in (ROOT / top).rglob("*.cuh")}
    expected |= {"tilec/py.typed", "tilec/page/page.css", "tilec/page/page.js"}
    expected |= {f"tilec/tuning/{p.name}" for p in (ROOT / "tilec" / "tuning").glob("*.py")}
    assert expected <= set(names)
    site = str(tmp_path / "site")
    code = f"import tilec; print(tilec.__file__, tilec.compile({PROGRAM!r}).name)"
    assert python(code, PYTHONPATH=site).split() == [f"{site}/tilec/__init__.py", "f"]


def test_editable_install_finds_the_folders(checkout, tmp_path):
    wheel = build("editable", checkout, tmp_path)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as z:
        z.extractall(site)
    code = (
        f"import sys, site; sys.path = [p for p in sys.path if p not in ('', {str(ROOT)!r})];"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)];"
        "[sys.modules.pop(m) for m in [*sys.modules] if m.startswith('__editable__')];"
        f"sys.path.insert(0, {str(site)!r}); site.addsitedir({str(site)!r}); import tilec.passes.expand as p, tilec;"
        f"print(p.__file__, tilec.compile({PROGRAM!r}).name)"
    )
    found = python(code, PYTHONPATH="").split()
    assert found == [str(checkout / "passes" / "expand.py"), "f"]
