"""Fetches the OpenSearch of the tests and unpacks it: `python .ci/fetch_opensearch.py FOLDER`.

By Maven (`.ci/opensearch.xml`), every file compared with its SHA-256. What the machine lacks is told in a
line, and the tests that need it are left out then: Linux, a JDK of 21 or newer, Maven. The folder gets
`home/` and, in `java-home`, where the JDK is.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

VERSION = "3.4.0"
OLDEST_JAVA = 21
POM = Path(__file__).with_name("opensearch.xml")
DIGESTS = {
    f"opensearch-{VERSION}.zip": "6540e95fe8bfaedc3eb1c58e829912ea2203af2ac1f88f76411c20a2fc5254a6",
    f"opensearch-knn-{VERSION}.0.zip": "f6cc96677277521e0dacc82aa078f87df70032026c8c7059623467a4141cfd2f",
    f"lang-painless-{VERSION}.jar": "2c6d2f22ef905744ce4681d8c06127f7b5f78da69da7a5d6dfa6cb16304e4813",
    f"opensearch-scripting-painless-spi-{VERSION}.jar": "f35b1a391cdaee81bf419fa844fa5c52d71ba04b37952e15c540"
    "3d1b81c1a080",
    "antlr4-runtime-4.13.1.jar": "54665d2838cc66458343468efc539e454fc95b46a8a04b13c6ac43fc9be63505",
    "asm-9.7.jar": "adf46d5e34940bdf148ecdd26a9ee8eea94496a72034ff7141066b3eea5c4e9d",
    "asm-analysis-9.7.jar": "7bc6bcbc21379948a0c8c467fb0f864206e5b818f6bc0b546872f5c9f941556f",
    "asm-commons-9.7.jar": "389bc247958e049fc9a0408d398c92c6d370c18035120395d4cba1d9d9304b7a",
    "asm-tree-9.7.jar": "62f4b3bc436045c1acb5c3ba2d8ec556ec3369093d7f5d06c747eb04b56d52b1",
    "asm-util-9.7.jar": "37a6414d36641973f1af104937c95d6d921b2ddb4d612c66c5a9f2b13fc14211",
}
# The core's distribution has no painless; its module is these lines and the jars above.
_PAINLESS = f"""\
description=painless
version={VERSION}
name=lang-painless
classname=org.opensearch.painless.PainlessModulePlugin
java.version=21
opensearch.version={VERSION}
extended.plugins=
has.native.controller=false
"""


def java_homes() -> Iterator[Path]:
    """Where a JDK may be, the likeliest first."""
    for variable in ("OPENSEARCH_JAVA_HOME", "JAVA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    program = shutil.which("java")
    if program:
        yield Path(program).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)


def java_version(home: Path) -> int:
    """The main version of the JDK in a folder; 0 where there is none."""
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return 0
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    return int(version[1]) if version and (home / "bin" / "java").exists() else 0


def missing() -> str | None:
    """What this machine lacks to fetch and run OpenSearch, in words."""
    if platform.system() != "Linux":
        return f"it is run on Linux, and this is {platform.system()}"
    if not any(java_version(home) >= OLDEST_JAVA for home in java_homes()):
        return f"it needs a JDK of {OLDEST_JAVA} or newer; set JAVA_HOME"
    if shutil.which("mvn") is None:
        return "it is fetched by Maven, and `mvn` is not on PATH"
    return None


def fetch(folder: Path) -> str | None:
    """Every file of `DIGESTS` into a folder, compared; what went wrong where Maven could not. Raises
    `SystemExit` for a file that is another one than was pinned.
    """
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy", f"-Dfolder={folder}"]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    if status.returncode:
        return f"Maven could not fetch it:\n{status.stdout[-2000:]}{status.stderr[-2000:]}"
    for name, digest in DIGESTS.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{name} is not what it was when it was pinned")
    return None


def unpack(fetched: Path, home: Path) -> None:
    """The distribution with the k-NN plugin and painless, in a folder that every user may read."""
    with zipfile.ZipFile(fetched / f"opensearch-{VERSION}.zip") as archive:
        archive.extractall(fetched)
    shutil.move(fetched / f"opensearch-{VERSION}", home)
    plugin = home / "plugins" / "opensearch-knn"
    with zipfile.ZipFile(fetched / f"opensearch-knn-{VERSION}.0.zip") as archive:
        archive.extractall(plugin)
    painless = home / "modules" / "lang-painless"
    painless.mkdir(exist_ok=True)
    for name in DIGESTS:
        if name.endswith(".jar"):
            shutil.copy(fetched / name, painless)
    (painless / "plugin-descriptor.properties").write_text(_PAINLESS, encoding="utf-8")
    for program in (home / "bin").iterdir():
        program.chmod(0o755)
    subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)


def main() -> int:
    """Fetches and unpacks, unless what is there was pinned so."""
    folder = Path(sys.argv[1]).resolve()
    lack = missing()
    if lack is not None:
        print(f"The OpenSearch of the tests is left out: {lack}")
        return 0
    java = next(home for home in java_homes() if java_version(home) >= OLDEST_JAVA)
    stamp = folder / "pinned"
    pinned = "\n".join(DIGESTS.values())
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == pinned):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=folder) as fetched:
            failure = fetch(Path(fetched))
            if failure is not None:
                print(f"The OpenSearch of the tests is left out: {failure}")
                return 0
            unpack(Path(fetched), folder / "home")
        folder.chmod(0o755)
        stamp.write_text(pinned, encoding="utf-8")
    (folder / "java-home").write_text(str(java), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
