"""Real packages, built as for AWS: the registry is asked for wheels unless uv has them cached."""

from __future__ import annotations

import hashlib
import struct
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra import bundling
from infra.bundling import ROOT, SOURCE_DIR, UNZIPPED_LIMIT_BYTES, Package, package, source_files, source_package

AARCH64 = 0xB7
"""`e_machine` of an ELF file for arm64 (ELF for the Arm 64-bit Architecture, section "ELF header")."""


@pytest.fixture(scope="module")
def build_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


@pytest.fixture(scope="module")
def core(build_dir: Path) -> Package:
    return package(build_dir=build_dir)


@pytest.fixture(scope="module")
def providers(build_dir: Path) -> Package:
    return package("openai", build_dir=build_dir)


def _names(package: Package) -> set[str]:
    with zipfile.ZipFile(package.path) as archive:
        return set(archive.namelist())


def _libraries(package: Package) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(package.path) as archive:
        for name in archive.namelist():
            if ".so" in Path(name).suffixes:
                yield name, archive.read(name)


def _locked(name: str) -> str:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    return str(next(each["version"] for each in lock["package"] if each["name"] == name))


def test_a_package_holds_our_source_and_what_it_imports(core: Package) -> None:
    names = _names(core)
    assert {path.relative_to(SOURCE_DIR).as_posix() for path in source_files()} <= names
    for module in ("pydantic", "msgspec", "orjson", "zstandard", "minijinja", "jsonschema_rs", "yaml", "boto3"):
        assert any(name.startswith(f"{module}/") for name in names), module


def test_versions_are_those_of_the_lock(core: Package) -> None:
    names = _names(core)
    for distribution in ("botocore", "pydantic", "msgspec"):
        assert f"{distribution}-{_locked(distribution)}.dist-info/METADATA" in names


def test_the_operators_and_developers_things_stay_at_home(core: Package, providers: Package) -> None:
    for built in (core, providers):
        tops = {name.partition("/")[0] for name in _names(built)}
        assert not tops & {"typer", "rich", "pytest", "aws_cdk", "ministack", "moto", "bin"}
        assert not [name for name in _names(built) if name.startswith("tallybatch/cli/") or "__pycache__" in name]


def test_only_the_providers_package_has_a_providers_sdk(core: Package, providers: Package) -> None:
    assert "openai/__init__.py" in _names(providers)
    assert "openai/__init__.py" not in _names(core)
    assert _names(core) <= _names(providers)


def test_every_library_is_for_arm64_and_python_3_13(providers: Package) -> None:
    libraries = list(_libraries(providers))
    assert len(libraries) > 5
    for name, content in libraries:
        assert content[:4] == b"\x7fELF", name
        assert struct.unpack_from("<H", content, 18)[0] == AARCH64, name
        assert "cpython-313-" in name or ".abi3." in name or "cpython" not in name, name


def test_packages_fit_into_lambda(core: Package, providers: Package) -> None:
    for built in (core, providers):
        with zipfile.ZipFile(built.path) as archive:
            assert sum(each.file_size for each in archive.infolist()) < UNZIPPED_LIMIT_BYTES / 2


def test_our_version_can_be_read_in_a_function(core: Package) -> None:
    version = bundling.project_version()
    with zipfile.ZipFile(core.path) as archive:
        assert f"Version: {version}\n" in archive.read(f"tallybatch-{version}.dist-info/METADATA").decode()


def test_a_second_build_is_taken_from_the_cache(core: Package, build_dir: Path) -> None:
    before = core.path.stat().st_mtime_ns
    assert package(build_dir=build_dir) == core
    assert core.path.stat().st_mtime_ns == before


def test_the_same_inputs_give_the_same_bytes(core: Package, tmp_path: Path) -> None:
    again = package(build_dir=tmp_path)
    assert again.hash == core.hash
    assert hashlib.sha256(again.path.read_bytes()).digest() == hashlib.sha256(core.path.read_bytes()).digest()


def test_another_source_is_another_package_and_replaces_the_old_one(
    build_dir: Path, core: Package, providers: Package, tmp_path: Path
) -> None:
    source = tmp_path / "functions"
    (source / "tallybatch").mkdir(parents=True)
    (source / "tallybatch" / "__init__.py").write_text("CHANGED = True\n")
    changed = package(build_dir=build_dir, source_dir=source)
    assert changed.hash != core.hash
    assert not core.path.exists()
    assert providers.path.exists()
    with zipfile.ZipFile(changed.path) as archive:
        assert archive.read("tallybatch/__init__.py") == b"CHANGED = True\n"


def test_the_source_package_is_named_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    first = source_package(tmp_path).hash
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.cpython-313.pyc").write_bytes(b"x")
    assert source_package(tmp_path).hash == first
    (tmp_path / "tallybatch" / "cli").mkdir(parents=True)
    (tmp_path / "tallybatch" / "cli" / "main.py").write_text("not shipped")
    assert source_package(tmp_path).hash == first
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert source_package(tmp_path).hash != first


def test_a_missing_uv_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(bundling.BundlingError, match="uv is not on the path; install it"):
        package(build_dir=tmp_path / "build")
