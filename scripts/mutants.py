#!/usr/bin/env python3
"""Applies mutants of tests/mutants/mutants.toml to a copy of the project, one at a time, and expects tests to go red.

usage: mutants.py --check ROOT           that each mutant's text is found exactly once, and nothing else
       mutants.py ROOT FOLDER [PATTERN]  builds and tests those whose name contains PATTERN in a copy under FOLDER

The project's own files are never changed. Exit status: 0 if all were caught, 1 if one was not, 2 if one cannot be
tried: its text is not found, it does not build, or its tests fail without it.
"""
import os
import subprocess
import sys
import tomllib
from pathlib import Path

FIELDS = {"name", "file", "line", "replacement", "program", "filter"}
SECONDS = 120  # after which a test is taken to hang, which is as good as red


class CannotTry(Exception):
    pass


def read(root):
    with open(root / "tests/mutants/mutants.toml", "rb") as file:
        mutants = tomllib.load(file)["mutant"]
    names = [mutant["name"] for mutant in mutants]
    for name in sorted({name for name in names if names.count(name) > 1}):
        raise CannotTry(f"{name}: two mutants have this name")
    return mutants


def mutated(root, mutant):
    """The text of the mutant's file without and with the mutant."""
    if set(mutant) != FIELDS:
        raise CannotTry(f"{mutant.get('name')}: its fields are not {', '.join(sorted(FIELDS))}")
    text = (root / mutant["file"]).read_text()
    found = text.count(mutant["line"])
    if found != 1:
        raise CannotTry(f"{mutant['name']}: {mutant['file']} has its line {found} times, not once")
    if mutant["line"] == mutant["replacement"]:
        raise CannotTry(f"{mutant['name']}: it changes nothing")
    return text, text.replace(mutant["line"], mutant["replacement"])


def check(root):
    wrong = []
    mutants = read(root)
    for mutant in mutants:
        try:
            mutated(root, mutant)
        except (CannotTry, OSError) as error:
            wrong.append(str(error))
    print("\n".join(wrong) if wrong else f"{len(mutants)} mutants apply")
    return 2 if wrong else 0


def write_if_changed(path, content, mode):
    """Leaves what is as it should be alone, so that little is built again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    path.chmod(mode)


def copy_tree(root, tree):
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                            check=True, capture_output=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and (root / name).is_file()}
    for name in wanted:
        write_if_changed(tree / name, (root / name).read_bytes(), (root / name).stat().st_mode & 0o777)
    for path in tree.rglob("*"):
        inside = path.relative_to(tree)
        if path.is_file() and inside.parts[0] != "build" and str(inside) not in wanted:
            path.unlink()


def run(command, tree, seconds=None):
    """(exit status, output); the status is None where the time was up."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds, text=True, errors="replace", check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def build(tree, programs):
    return run(["ninja", "-C", str(tree / "build/release"), *programs], tree)


def find_program(tree, name):
    found = [path for path in (tree / "build/release/tests").rglob(name) if path.is_file() and os.access(path, os.X_OK)]
    if len(found) != 1:
        raise CannotTry(f"there is no one program {name}")
    return str(found[0])


def run_tests(tree, mutant):
    return run([find_program(tree, mutant["program"]), f"--gtest_filter={mutant['filter']}"], tree, SECONDS)


def prepare(root, tree, mutants):
    """Copies, configures and builds the project, and sees that the tests pass without mutants."""
    copy_tree(root, tree)
    if not (tree / "build/release/build.ninja").exists():
        status, output = run(["cmake", "--preset", "release", "-DCUVMM_COMPILE_IN_BATCHES=OFF"], tree)
        if status != 0:
            raise CannotTry(f"CMake cannot configure the copy:\n{output}")
    status, output = build(tree, sorted({mutant["program"] for mutant in mutants}))
    if status != 0:
        raise CannotTry(f"the project does not build without mutants:\n{output}")
    for program, tests in sorted({(mutant["program"], mutant["filter"]) for mutant in mutants}):
        status, output = run_tests(tree, {"program": program, "filter": tests})
        if status != 0 or "[  PASSED  ] 0 tests" in output:
            raise CannotTry(f"{program} {tests}: not green without mutants, or no such test:\n{output[-2000:]}")


def first_red(output):
    for line in output.splitlines():
        if line.startswith("[  FAILED  ] "):
            return line.removeprefix("[  FAILED  ] ").split(" ")[0].rstrip(",")
    return "the program ended"


def attempt(tree, mutant):
    """What became of the mutant: "caught by ...", or "SURVIVED"."""
    path = tree / mutant["file"]
    text, changed = mutated(tree, mutant)
    try:
        path.write_text(changed)
        status, output = build(tree, [mutant["program"]])
        if status != 0:
            raise CannotTry(f"{mutant['name']}: it does not build:\n{output[-2000:]}")
        status, output = run_tests(tree, mutant)
    finally:
        path.write_text(text)
    if status is None:
        return "caught: the tests hang"
    return "SURVIVED" if status == 0 else f"caught by {first_red(output)}"


def try_all(root, folder, pattern):
    mutants = [mutant for mutant in read(root) if pattern in mutant["name"]]
    if not mutants:
        raise CannotTry(f"no mutant's name contains '{pattern}'")
    tree = folder / "tree"
    prepare(root, tree, mutants)
    caught = survived = 0
    for mutant in mutants:
        try:
            fate = attempt(tree, mutant)
        except CannotTry as error:
            fate = f"CANNOT BE TRIED: {error}"
        caught += fate.startswith("caught")
        survived += fate == "SURVIVED"
        print(f"{mutant['name']:<60} {fate}", flush=True)
    not_tried = len(mutants) - caught - survived
    print(f"{len(mutants)} mutants, {caught} caught, {survived} survived, {not_tried} could not be tried")
    return 1 if survived else 2 if not_tried else 0


def main(arguments):
    try:
        if len(arguments) == 2 and arguments[0] == "--check":
            return check(Path(arguments[1]).resolve())
        if len(arguments) in (2, 3):
            return try_all(Path(arguments[0]).resolve(), Path(arguments[1]).resolve(), *arguments[2:] or [""])
    except CannotTry as error:
        print(error)
        return 2
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
