"""`ctx registry`: installs, updates and shows scripts that others share. A registry is pinned to a commit,
and each script must be trusted.

`ctx trust`: trusts a project's configuration, the scripts that it names, those in its `.ctx` folder, and
scripts of registries.
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence

from ctx import files
from ctx.cli import Parser, action, actions_of
from ctx.cli.configuration import (
    append_table,
    bullets,
    configuration_at,
    project_location,
    requests_of,
    scaffold,
    scripts_of,
)
from ctx.cli.output import Columns, bars, plain, tell, tell_table, without_reported
from ctx.config.find import project_root, trusted_as
from ctx.config.settings import REGISTRY_PREFIX
from ctx.config.toml import read_toml, toml_key, toml_value
from ctx.config.trust import TrustFile, project_scripts, trust_path
from ctx.errors import BadRequest, ConfigError
from ctx.models import JSON, as_table, record_json
from ctx.scripts.registry import InstalledRegistries, installed_registries, new_registry
from ctx.scripts.registry_contents import MANIFEST, Contents, Registry, RegistryScript, fetch
from ctx.text.strings import counted, one_line

_TRUST_COLUMNS: Columns = {
    "KIND": "kind",
    "NAME": "name",
    "STATE": lambda row: row.get("state") or ("trusted" if row["trusted"] else "NOT trusted"),
    "SHA-256": lambda row: row["sha256"][:16],
}


def run_registry(args: Namespace) -> int:
    return int(args.run(installed_registries(os.environ), args))


def registry_options(options: Parser) -> None:
    """Install Lua tools, connectors and agents that others share in a git repository, pinned to a
    commit and checked by hash. None runs before you `ctx trust` it.

    ctx registry install team https://example.org/team.git
    ctx registry list
    """
    actions = actions_of(options)
    listing = action(actions, "list", "the installed registries, or the scripts of one", _list)
    listing.add_argument("name", nargs="?", help="a registry")
    install = action(actions, "install", "fetch a registry and pin it; run nothing", _install)
    install.add_argument("name", help="its name here")
    install.add_argument("url", nargs="?", help="what git can clone; not needed to reinstall a registry")
    install.add_argument("--branch", metavar="NAME", help="a branch, a tag or a full commit id")
    update = action(actions, "update", "pin the newest commit, and show what changed", _update)
    update.add_argument("name", nargs="?", help="only this registry")
    update.flag("--dry-run", "only show what would change")
    update.flag("--rewritten", "even if the branch no longer has the installed commit")
    search = action(actions, "search", "search scripts by name, description and tags", _search)
    search.add_argument("words", nargs="+")
    info = action(actions, "info", "show a script with its settings, files and hashes", _info)
    add = action(actions, "add", "add a script to this project's configuration", _add)
    override = action(actions, "override", "copy a script into this project to change it", _override)
    for parser in (info, add, override):
        parser.add_argument("script", help="tools/SCRIPT, or REGISTRY/tools/SCRIPT")
    add.add_argument("--name", help="its name here (default: the registry's name for it)")
    remove = action(actions, "remove", "remove a registry, and the trust in its scripts", _remove)
    remove.add_argument("name")
    init = action(actions, "init", "write an example registry into a new folder", _init)
    init.add_argument("folder", help="where to")


# -- listing and searching -----------------------------------------------------------------------------------


def _list(installed: InstalledRegistries, args: Namespace) -> int:
    if args.name is not None:
        return _print_scripts(installed, installed.registry(args.name).scripts, args.json)
    rows = [_registry_json(installed, registry) for registry in installed.with_shipped()]
    columns: Columns = {
        "REGISTRY": "name",
        "COMMIT": lambda row: row["commit"][:12],
        "TRUSTED": lambda row: f"{sum(each['trusted'] for each in row['scripts'])} of {len(row['scripts'])}",
        "FROM": "url",
    }
    return tell_table(args.json, {"registries": rows}, rows, columns, "No registries.")


def _search(installed: InstalledRegistries, args: Namespace) -> int:
    def matches(script: RegistryScript) -> bool:
        text = " ".join((script.name, script.description, *script.tags)).lower()
        return all(word.lower() in text for word in args.words)

    scripts = [script for registry in installed.with_shipped() for script in registry.scripts]
    return _print_scripts(installed, list(filter(matches, scripts)), args.json)


def _print_scripts(installed: InstalledRegistries, scripts: Sequence[RegistryScript], as_json: bool) -> int:
    rows = [_script_json(installed, script) for script in scripts]
    columns: Columns = {"SCRIPT": "script", "STATE": _state, "DESCRIPTION": "description"}
    return tell_table(as_json, {"scripts": rows}, rows, columns, "No scripts.")


def _info(installed: InstalledRegistries, args: Namespace) -> int:
    scripts = installed.scripts(args.script)
    if "/" not in args.script:
        return _print_scripts(installed, scripts, args.json)
    row = _script_json(installed, scripts[0])
    state = f"  state    {plain(row['problem'] or _state(row))}"
    return tell(args.json, row, *script_lines(installed, scripts[0]), state)


def _state(row: JSON) -> str:
    return "CHANGED here" if row["problem"] else "trusted" if row["trusted"] else "NOT trusted"


def _registry_json(installed: InstalledRegistries, registry: Registry) -> dict[str, JSON]:
    scripts = [_script_json(installed, script) for script in registry.scripts]
    return {**record_json(registry, omit=("scripts",)), "scripts": scripts}


def _script_json(installed: InstalledRegistries, script: RegistryScript) -> dict[str, JSON]:
    return {
        "script": script.reference,
        **record_json(script, omit=("registry", "sizes")),
        "sha256": script.digest,
        "trusted": installed.runs(script),
        "problem": installed.change(script),
        "text": installed.path_of(script, f"{script.kind}.lua"),
    }


# -- installing ----------------------------------------------------------------------------------------------


def _install(installed: InstalledRegistries, args: Namespace) -> int:
    if args.url is None:  # reinstalls the same commit; `update` fetches a newer one
        registry = _not_shipped(installed, args.name)
        branch: str | None = registry.commit
    else:
        present = {registry.name: registry for registry in installed.registries()}.get(args.name)
        if present is not None:
            problem = f"'{args.name}' is already installed from {one_line(present.url)}"
            raise BadRequest(f"{problem}; `ctx registry update {args.name}` updates it")
        url = os.path.abspath(args.url) if os.path.isdir(args.url) else args.url
        registry, branch = new_registry(args.name, url, args.branch), args.branch
    registry, contents, _ = _fetched(registry, branch)
    installed.install(registry, contents.files)
    lines = [
        f"Installed {registry.name} at {registry.commit[:12]}, {counted(len(registry.scripts), 'script')}.",
        *(f"  left out: {plain(problem)}" for problem in contents.problems),
    ]
    tell(args.json, {**_registry_json(installed, registry), "left_out": list(contents.problems)}, *lines)
    if registry.scripts and not args.json:
        print()
        _print_scripts(installed, registry.scripts, False)
        print("\nNone of its scripts runs yet.", *_trust_lines(registry.scripts[0]), sep="\n")
    return 0


def _trust_lines(script: RegistryScript) -> list[str]:
    return [
        f"Review a script:  ctx registry info {script.reference}",
        f"Then trust it:    ctx trust {script.reference}",
    ]


def _fetched(registry: Registry, branch: str | None) -> tuple[Registry, Contents, bool | None]:
    with bars() as progress, without_reported():
        return fetch(registry, branch, progress)


def _update(installed: InstalledRegistries, args: Namespace) -> int:
    registries = installed.registries() if args.name is None else (_not_shipped(installed, args.name),)
    if not (registries or args.json):
        print("No registries. `ctx registry install NAME URL` installs one.")
    reports = [_update_one(installed, registry, args) for registry in registries]
    return tell(args.json, {"registries": reports})


def _update_one(installed: InstalledRegistries, registry: Registry, args: Namespace) -> JSON:
    newest, contents, follows = _fetched(registry, registry.branch)
    if follows is False and not args.rewritten:
        problem = (
            f"the branch was rewritten and no longer contains {registry.commit[:12]}, which is installed"
        )
        hint = f"If you expected this, run `ctx registry update {registry.name} --rewritten`"
        raise BadRequest(f"{registry.name}: {problem}; nothing was changed. {hint}")
    before = {script.reference: script.digest for script in registry.scripts}
    after = {script.reference: script.digest for script in newest.scripts}
    changes = {
        reference: "new" if reference not in before else "gone" if reference not in after else "changed"
        for reference in sorted(before.keys() | after.keys())
        if before.get(reference) != after.get(reference)
    }
    if not args.dry_run:
        installed.install(newest, contents.files)
    if not args.json:
        if registry.commit == newest.commit:
            print(f"{registry.name}: up to date at {registry.commit[:12]}")
        else:
            verb = "would change" if args.dry_run else "updated"
            print(f"{registry.name}: {verb} from {registry.commit[:12]} to {newest.commit[:12]}")
        for reference, change in changes.items():
            trust = " (no longer trusted: review it, then run `ctx trust`)" if change == "changed" else ""
            print(f"  {change:<8} {reference}{trust}")
        for problem in contents.problems:
            print(f"  left out: {plain(problem)}")
    commits = {"from": registry.commit, "to": newest.commit}
    return {"name": registry.name, **commits, "changes": changes, "left_out": list(contents.problems)}


def _not_shipped(installed: InstalledRegistries, name: str) -> Registry:
    registry = installed.registry(name)
    if registry not in installed.registries():
        raise BadRequest(f"'{name}' ships with ctx and cannot be changed here")
    return registry


def _remove(installed: InstalledRegistries, args: Namespace) -> int:
    registry = _not_shipped(installed, args.name)
    installed.remove(registry)
    line = f"Removed {registry.name}, {counted(len(registry.scripts), 'script')}."
    return tell(args.json, {"removed": registry.name}, line)


# -- using scripts in a project ------------------------------------------------------------------------------


def _picked(installed: InstalledRegistries, reference: str) -> RegistryScript:
    if "/" not in reference:
        raise BadRequest(f"'{reference}' is not a script; write tools/SCRIPT, or REGISTRY/tools/SCRIPT")
    return installed.scripts(reference)[0]


def _add(installed: InstalledRegistries, args: Namespace) -> int:
    script = _picked(installed, args.script)
    name = args.name or script.name
    location = project_location(args.config)
    configuration_at(location)  # reports a mistake before the file is changed
    path = os.path.abspath(location.path)
    section = f"{script.kind}s.script.{toml_key(name)}"
    if name in _sections(path, script.kind):
        raise BadRequest(f"[{section}] is already in {os.path.basename(path)}; use `--name` for another name")
    needs = "".join(f'# {toml_key(word)} = ""  # {script.name} needs it\n' for word in script.required_config)
    block = append_table(location, section, f'path = "{script.reference}"\n{needs}')
    lines = [f"Added to {os.path.basename(path)}:\n{block.rstrip()}"]
    if not installed.trusted(script):
        lines += ["\nIt is not trusted yet.", *_trust_lines(script)]
    return tell(args.json, {"added": script.reference, "file": path, "section": section}, *lines)


def _sections(path: str, kind: str) -> Mapping[str, JSON]:
    """The scripts of this kind in the configuration at `path`: name -> table."""
    tables = read_toml(path, os.path.basename(path))
    return as_table(as_table(tables.get(f"{kind}s")).get("script"))


def _override(installed: InstalledRegistries, args: Namespace) -> int:
    script = _picked(installed, args.script)
    location = project_location(args.config)
    config = configuration_at(location)
    entries = _sections(location.path, script.kind).items()
    named = [name for name, entry in entries if as_table(entry).get("path") == script.reference]
    folder = os.path.join(config.root, f"{script.kind}s", script.name)
    copies = {name: os.path.join(folder, name) for name in script.files}
    for path in copies.values():
        if os.path.lexists(path):
            raise BadRequest(f"{os.path.relpath(path, config.root)} is there already; nothing was written")
    _refuse_damaged(installed, [script])
    texts = {name: files.read_file(installed.path_of(script, name)) for name in copies}
    with files.writing("the copy", ConfigError):
        for name, path in copies.items():
            files.make_folder(os.path.dirname(path), beneath=config.root)
            files.replace(path, texts[name], mode=0o644, beneath=config.root)
    target = os.path.relpath(copies[f"{script.kind}.lua"], config.root)
    lines = [f"Copied {script.reference} to {target}."]
    instead = f"  # instead of {script.reference}" if named else ""
    for name in named or [script.name]:
        lines.append(f'In ctx.toml:\n[{script.kind}s.script.{toml_key(name)}]\npath = "./{target}"{instead}')
    return tell(args.json, {"copied": script.reference, "to": target}, *lines)


def blank_registry_files(name: str) -> dict[str, str]:
    """The files of an example registry: path -> text."""
    texts = {
        "registry.toml": scaffold("registry.toml", name=toml_value(name)),
        "README.md": scaffold("registry.md", name=name),
    }
    for kind in ("tool", "connector", "agent"):
        path = f"{kind}s/hello/{kind}.lua"
        texts[path] = scaffold(f"{kind}.lua", name="hello", title="hello", path=path)
    return texts


def _init(installed: InstalledRegistries, args: Namespace) -> int:
    if os.path.isdir(args.folder) and os.listdir(args.folder):
        raise BadRequest(f"{args.folder} is not empty; nothing was written")
    texts = blank_registry_files(os.path.basename(os.path.abspath(args.folder)))
    for path, text in texts.items():
        target = os.path.join(args.folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:
            file.write(text)
    return tell(
        args.json,
        {"folder": args.folder, "files": sorted(texts)},
        f"Wrote {args.folder}: {MANIFEST}, a tool, a connector and an agent.",
        f"Try one: ctx tool test {os.path.join(args.folder, 'tools/hello/tool.lua')} query=words",
        "Then commit it, and others can install it: ctx registry install NAME URL",
    )


# -- trust ---------------------------------------------------------------------------------------------------


def trust_options(options: Parser) -> None:
    """Trust this project's configuration, if it asks for more than reading its own folder, the scripts
    that it names, and those of the .ctx folder. Review them first: each is trusted by its hash.

    ctx trust --list
    ctx trust ctx.toml
    """
    add = options.add_argument
    names = "a script, the configuration, or registry:NAME/tools/SCRIPT (default: all of the project)"
    add("names", nargs="*", metavar="NAME", help=names)
    options.flag("--list", "only show what is trusted and what each asks for")
    options.flag("--revoke", "stop trusting them")


def run_trust(args: Namespace) -> int:
    if any(name.startswith(REGISTRY_PREFIX) for name in args.names):
        return _trust_registry_scripts(args)
    location = project_location(args.config)
    file = TrustFile(trust_path(os.environ))
    digests = file.digests()
    configured = requests_of(location)
    pinned = scripts_of(location, digests)
    scripts = [*pinned, *project_scripts(project_root(location.path), digests)]
    unknown = set(args.names) - {script.name for script in scripts} - {configured.name}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise BadRequest(f"no {names} in .ctx/tools or .ctx/agents; the configuration is {configured.name}")
    included = not args.names or configured.name in args.names
    picked = [
        script
        for script in scripts
        if not args.names or script.name in args.names or (included and script in pinned)
    ]
    trusted = digests.get(trusted_as(configured.path)) == configured.digest
    if included and configured.lines and not args.json:
        print(f"{one_line(configured.name)} asks for more than reading its own folder:")
        print(bullets(configured.lines), flush=True)
    if not args.list:
        changes = {script.path: script.digest for script in picked}
        if included and (args.revoke or configured.lines):
            changes[trusted_as(configured.path)] = configured.digest
            trusted = not args.revoke
        file.record(dict.fromkeys(changes) if args.revoke else changes)
        picked = [script._replace(trusted=not args.revoke) for script in picked]
    state = "trusted" if trusted else "named" if configured.chosen else "NOT trusted"
    state = state if configured.lines else "asks for nothing"
    described = {
        "kind": "configuration",
        "name": configured.name,
        "sha256": configured.digest,
        "trusted": state != "NOT trusted",
        "asks": configured.lines,
    }
    rows = [_trust_row(script.kind, script.name, script.digest, script.trusted) for script in picked]
    listed = [{**described, "state": state}, *rows] if included else rows
    notes = [] if picked else ["This project has no scripts."]
    reply = {"configuration": described, "scripts": rows}
    return tell_table(args.json, reply, listed, _TRUST_COLUMNS, "", notes)


def _trust_row(kind: str, name: str, digest: str, trusted: bool) -> dict[str, JSON]:
    return {"kind": kind, "name": name, "sha256": digest, "trusted": trusted}


def _trust_registry_scripts(args: Namespace) -> int:
    """Trusts scripts of installed registries and prints each script first. `--revoke` removes the trust,
    `--list` only lists the scripts.
    """
    installed = installed_registries(os.environ)
    strangers = [name for name in args.names if not name.startswith(REGISTRY_PREFIX)]
    if strangers:
        raise BadRequest(f"{', '.join(strangers)}: trust the scripts of registries with a separate command")
    scripts = [script for name in args.names for script in installed.scripts(name)]
    if not args.list:
        if not args.revoke:
            _refuse_damaged(installed, scripts)
        for script in [] if args.json else scripts:
            print("\n".join(script_lines(installed, script)), flush=True)
        hashes = {script.reference: None if args.revoke else script.digest for script in scripts}
        installed.trust.record(hashes)
    rows = []
    for script in scripts:
        row = _trust_row(script.kind, script.reference, script.digest, installed.trusted(script))
        rows.append({"script": script.reference, **row})
    return tell_table(args.json, {"scripts": rows}, rows, _TRUST_COLUMNS, "")


def _refuse_damaged(installed: InstalledRegistries, scripts: Sequence[RegistryScript]) -> None:
    """Raises `ConfigError` if a script has changed since it was installed."""
    for script in scripts:
        if change := installed.change(script):
            raise ConfigError(change)


def script_lines(installed: InstalledRegistries, script: RegistryScript) -> list[str]:
    """Describes a registry's script in lines, for a user who decides whether to trust it."""
    lines = [
        f"{script.reference}: {plain(script.description) or 'no description'}",
        f"  sha256   {script.digest}",
        f"  text     {plain(installed.path_of(script, f'{script.kind}.lua'))}",
    ]
    for label, words in (("tags", script.tags), ("needs", script.required_config)):
        lines += [f"  {label:<8} {plain(', '.join(words))}"] if words else []
    for name, digest in sorted(script.files.items()):
        lines.append(f"  file     {name}  {script.sizes.get(name, 0):,} bytes  {digest[:16]}")
    return lines
