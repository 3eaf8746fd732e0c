"""The files and folders that sources leave out by default. All other text is read."""

import re

# Larger files are left out, because a text file of this size is usually a log or a dump.
MAX_FILE_BYTES = 10_000_000

SECRET = "possible secret"  # noqa: S105
LOCK_FILE = "lock file"
MINIFIED = "minified file"
SOURCE_MAP = "source map"
BACKUP = "editor backup"
BINARY = "binary file"
VENDORED = "vendored folder"
WORKTREE = "linked worktree"

_LOCK_FILES = """
    npm-shrinkwrap.json pnpm-lock.yaml pnpm-lock.yml conda-lock.yml go.sum go.work.sum package.resolved
    gradle.lockfile buildscript-gradle.lockfile .terraform.lock.hcl cabal.project.freeze cartfile.resolved
    bun.lockb .pnp.cjs .pnp.loader.mjs
"""
_PRIVATE_NAMES = """
    .npmrc .netrc _netrc .pypirc .git-credentials .htpasswd .pgpass .my.cnf .s3cfg .boto .dockercfg
    .dockerconfigjson .vault-token kubeconfig secret secrets service-account.json service_account.json
    mcp.json .mcp.json mcp_config.json mcp_settings.json
"""
_KEY_SUFFIXES = "env pem key p12 pfx p8 jks keystore kdb kdbx ppk ovpn tfstate tfvars htpasswd gpg"
_BACKUP_SUFFIXES = "bak bck orig rej swp swo tmp crdownload part"
_SSH_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519")
# Formats that hold secrets. A page or a program called `credentials` explains or reads them.
_SETTINGS = "json yml yaml ini toml xml conf cfg properties plist env enc txt csv bak old"
_LOCK_NAME = re.compile(r"pylock(?:\..+)?\.toml|.+-lock\.json|.+\.lock\.(?:json|ya?ml|toml)")
_WEB = ("js", "mjs", "cjs", "css", "ts", "jsx", "tsx")
_BINARY = """
    png jpg jpeg jpe gif bmp ico icns webp avif heic heif tif tiff psd xcf ai eps svg svgz indd sketch
    fig blend raw cr2 nef dng exr dds tga
    mp3 wav flac ogg oga opus m4a aac wma aiff mid midi mp4 m4v mov avi mkv webm wmv flv mpg mpeg 3gp
    ttf otf woff woff2 eot pfb
    zip tar tgz gz bz2 tbz xz txz zst lz4 7z rar jar war ear aar whl egg gem deb rpm apk ipa dmg iso img msi
    cab vmdk qcow2 crx nupkg
    exe dll so dylib a o obj pyc pyo pyd class wasm elc beam pdb ilk node
    db db3 sqlite sqlite3 mdb accdb ibd
    onnx pt pth ckpt safetensors gguf ggml h5 hdf5 npy npz pkl pickle joblib parquet feather arrow avro
    orc rds rdata mat tfrecord pb tflite mlmodel
    glb fbx stl dae 3ds max unity3d swf ds_store
"""

# Temporary files that editors and agents write while they save.
_TEMPORARY = re.compile(r"~\Z|\A\.(?:#|~lock\.|goutputstream-)|\.tmp\.\d|___jb_(?:tmp|old)___\Z|\A4913\Z")

_BY_NAME = dict.fromkeys(_LOCK_FILES.split(), LOCK_FILE) | dict.fromkeys(_PRIVATE_NAMES.split(), SECRET)
_BY_SUFFIX = {
    **dict.fromkeys(_BINARY.split(), BINARY),
    **dict.fromkeys(_KEY_SUFFIXES.split(), SECRET),
    **dict.fromkeys(_BACKUP_SUFFIXES.split(), BACKUP),
    **dict.fromkeys(("lock", "locked"), LOCK_FILE),
}


def left_out(name: str) -> str | None:
    """Why a file is left out by its name, such as `SECRET`; None for a file to read.

    `SECRET` applies unless `include_globs` names the file; the other kinds apply only without
    `include_globs`.
    """
    name = name.lower()
    stem, _, suffix = name.rpartition(".")
    if not stem:  # the name has no dot, or only one at its start
        stem, suffix = (name, "") if name[:1] != "." else ("", suffix)
    if (name.startswith(".env") and not name[4:5].isalpha()) or name == ".envrc":
        return SECRET
    if _LOCK_NAME.fullmatch(name):
        return LOCK_FILE
    if name.startswith(".") and name.endswith(("_history", "credentials", "secrets", ".vars")):
        return SECRET
    is_key = name.startswith("id_") and (not suffix or name.startswith(_SSH_KEYS))
    holds_settings = not suffix or suffix in _SETTINGS.split()
    words = "credentials" in stem or stem.startswith(("client_secret", "service-account", "service_account"))
    if is_key or ".tfstate" in name or (holds_settings and (words or stem in ("secret", "secrets"))):
        return SECRET
    if kind := _BY_NAME.get(name) or _BY_SUFFIX.get(suffix):
        return kind
    if ".min." in name or (stem.endswith("-min") and suffix in _WEB):
        return MINIFIED
    if suffix == "map" and stem.rpartition(".")[2] in _WEB:
        return SOURCE_MAP
    hashed = name[:1] == name[-1:] == "#" and len(name) > 1
    return BACKUP if hashed or _TEMPORARY.search(name) else None


_MACHINERY = ".git .hg .svn .bzr .jj CVS .ctx"  # folders of version control systems and of ctx
_COPIES = """
    node_modules bower_components __pycache__ __pypackages__
    .venv .tox .nox .eggs .direnv .cache .gradle .terraform .yarn .pnpm-store .next .nuxt
    .mypy_cache .pytest_cache .ruff_cache .hypothesis .ipynb_checkpoints .stack-work .dart_tool
    .Trash .Trashes .Spotlight-V100 .fseventsd $RECYCLE.BIN lost+found
"""
# Folders with keys, which must stay private if a user indexes the home folder.
_KEYS = ".ssh .gnupg .aws .kube"

SKIPPED_FOLDERS = frozenset(f"{_MACHINERY} {_COPIES} {_KEYS}".split())
"""Folders that are never read, whatever the globs say: copies, caches and keys."""

_VENDORED = """
    third_party third-party thirdparty 3rdparty 3rd-party 3rd_party vendored _vendor Godeps Pods Carthage
    jspm_packages site-packages dist-packages .obsidian .idea
"""
VENDORED_FOLDERS = frozenset(_VENDORED.split())
"""Other people's code and editors' files: not read unless the configuration has `include_globs`."""

BUILD_FOLDERS = {"target": ("Cargo.toml", "pom.xml", "build.sbt")}
"""Folder name -> files. The folder is build output if one of these files is next to it."""

_MANIFESTS = """
    .git go.mod go.work composer.json Gemfile package.json Cargo.toml mix.exs pyproject.toml setup.py
    CMakeLists.txt Makefile meson.build Package.swift build.zig WORKSPACE MODULE.bazel
"""
VENDOR_MANIFESTS = frozenset(_MANIFESTS.split())
"""A folder `vendor` has copies of dependencies if one of these is next to it. Elsewhere it may have documents
about vendors.
"""
