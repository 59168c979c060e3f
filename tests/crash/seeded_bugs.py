#!/usr/bin/env python3
"""Checks that the tests notice bugs: puts one bug at a time into a copy of the tree, builds, and expects the bug's test to fail.

Each bug is a file in tests/crash/bugs: a patch, with lines before it that say what is wrong, what to build and which test must fail:
    Bug: ...
    Breaks: the promise of docs/design.md
    Targets: shoal_route_test
    Test: shoal_route_test --gtest_filter=LedgerTest.*
A bug is caught when its test passes without it and fails with it. The copy lies in build/bugs and is kept for the next time; the
working tree is only read. --rotate N chooses by the commit, so the same commit always tries the same bugs.

Where the kernel allows it, the commands see the copy in the place of the working tree (a mount of their own). Then what was built
there is up to date here, too, and only what the bug changes is compiled. Elsewhere the copy is built from the beginning.
"""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUGS = ROOT / "tests" / "crash" / "bugs"
BUILD = ROOT / "build" / "release"
TEST_SECONDS = 40  # for one run; a test that hangs has failed


class Bug:
    def __init__(self, file):
        self.file, self.name = file, file.stem
        self.text = file.read_text(encoding="utf-8")
        head = dict(re.findall(r"^(Bug|Breaks|Targets|Test): (.*)$", self.text, re.MULTILINE))
        missing = {"Bug", "Breaks", "Targets", "Test"} - head.keys()
        if missing:
            sys.exit(f"seeded_bugs: {file} lacks the lines {', '.join(sorted(missing))}")
        self.what, self.targets, self.test = head["Bug"], head["Targets"].split(), head["Test"]


def git(*words):
    """What git prints, or nothing where there is no git or no repository."""
    try:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return None


def source_files():
    """The paths of the working tree's files, without what is built: what git knows or would take, or all files where there is no git."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] not in ("build", ".git") and "__pycache__" not in path.parts)


def commit():
    """Names the state of the sources: git's commit, or a hash of all files where there is no git."""
    head = git("rev-parse", "HEAD")
    if head is not None:
        return head.strip()
    content = hashlib.sha256()
    for name in source_files():
        content.update(name.encode() + b"\0" + (ROOT / name).read_bytes() + b"\0")
    return content.hexdigest()


def chosen(bugs, count, by):
    """`count` of the bugs: others for another `by`."""
    order = sorted(bugs, key=lambda bug: hashlib.sha256(f"{by} {bug.name}".encode()).digest())
    return sorted(order[:count], key=lambda bug: bug.name)


class Copy:
    """A copy of the working tree with a build of its own. `self.prefix` runs a command that sees it in the place of the working tree."""

    def __init__(self, place):
        # As deep as a build of the tree itself, so that ccache finds the objects of the tree.
        self.place, self.tree, self.prefix, self.has_build = place, place, [], False
        if (BUILD / "build.ninja").exists():
            place.mkdir(parents=True, exist_ok=True)
            mount = f'mount --bind {shlex.quote(str(place.resolve()))} {shlex.quote(str(ROOT))} && cd {shlex.quote(str(ROOT))} && exec "$@"'
            prefix = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", mount, "sh"]
            if shutil.which("unshare") and subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode == 0:
                self.tree, self.prefix = ROOT, prefix
        self.build = self.tree / "build" / "release"
        self.environment = dict(os.environ, CCACHE_BASEDIR=str(self.tree), CCACHE_NOHASHDIR="1", CCACHE_SLOPPINESS="pch_defines,time_macros",
                                SHOAL_SOURCE_DIR=str(self.tree))

    def refresh(self):
        """The sources as they are in the working tree. Those that a bug has changed are newer than what was built with it."""
        wanted = set(source_files())
        with_times = self.prefix and not self.has_build  # those that the objects of the tree were built from
        for name in wanted:
            source, target = ROOT / name, self.place / name
            if not target.is_file() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
            if with_times:
                shutil.copystat(source, target)
        for path in self.place.rglob("*"):
            name = str(path.relative_to(self.place))
            if path.is_file() and name not in wanted and not name.startswith("build/"):
                path.unlink()

    def configure(self):
        if self.prefix:
            copied = self.place / "build" / "release"
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(BUILD, copied, symlinks=True)
            cache = copied / "CMakeCache.txt"  # the copy has no virtual environments
            cache.write_text(re.sub(r"^(SHOAL_PYTHON:\w+)=.*$", r"\1=", cache.read_text(), flags=re.M))
            self.has_build = True
            return
        # With ccache, the objects of the tree; without, what compiles in two thirds of the time.
        has_cache = shutil.which("ccache") and "CCACHE_DISABLE" not in os.environ
        how = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if has_cache else ["-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"]
        self._run(["cmake", "--preset", "release", *how])

    def make(self, targets):
        """Builds the targets. Returns the compiler's output, or nothing on success."""
        done = self._run(["cmake", "--build", self.build, "--target", *targets], check=False)
        return done.stdout if done.returncode else None

    def passes(self, test):
        program, *arguments = shlex.split(test)
        command = [*self.prefix, self.build / "bin" / program, *arguments]
        process = subprocess.Popen(command, cwd=self.tree, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
        try:
            output, _ = process.communicate(timeout=TEST_SECONDS)
        except subprocess.TimeoutExpired:
            return False, f"not over after {TEST_SECONDS} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # and the daemons that it started
                process.wait()
        if "0 tests" in output and "[==========] Running 0 tests" in output:
            return False, "no test has that name"
        return process.returncode == 0, output

    def apply(self, bug, reverse=False):
        """Applies the bug's patch. Returns whether it fits, and the output of patch."""
        command = ["patch", "-p1", "--forward", "--no-backup-if-mismatch", "--fuzz=2", "--reject-file=-"] + (["--reverse"] if reverse else [])
        done = subprocess.run(command, cwd=self.place, input=bug.text, capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    def _run(self, command, check=True):
        done = subprocess.run([*self.prefix, *command], cwd=self.tree, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace")
        if check and done.returncode:
            sys.exit(f"seeded_bugs: {' '.join(map(str, command))}:\n{done.stdout}")
        return done


def hunt(bug, copy, passed):
    """Returns why the bug was not caught, or nothing when it was."""
    if bug.test not in passed:
        said = copy.make(bug.targets)
        if said:
            return f"the tree does not build:\n{said[-4000:]}"
        passed[bug.test], output = copy.passes(bug.test)
        if not passed[bug.test]:
            return f"its test fails without it: {bug.test}\n{output[-4000:]}"
    elif not passed[bug.test]:
        return f"its test fails without it: {bug.test}"
    fits, said = copy.apply(bug)
    if not fits:
        return f"its patch no longer applies: make it again for the code as it is\n{said}"
    said = copy.make(bug.targets)
    if said:
        return f"it does not build:\n{said[-4000:]}"
    survives, _ = copy.passes(bug.test)
    return f"nobody noticed: {bug.test} passes with it" if survives else None


def check_fits(bugs):
    """Whether each patch can be applied to the working tree, which stays as it is."""
    misfits = 0
    for bug in bugs:
        command = ["patch", "-p1", "--forward", "--dry-run", "--fuzz=2", "--reject-file=-"]
        done = subprocess.run(command, cwd=ROOT, input=bug.text, capture_output=True, text=True)
        if done.returncode:
            misfits += 1
            print(f"{bug.name}: its patch no longer applies: make it again for the code as it is\n{done.stdout}{done.stderr}")
    print(f"{len(bugs) - misfits} of {len(bugs)} patches fit")
    return 1 if misfits else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--bug", metavar="NAME", action="append", help="only that one; may be repeated")
    which.add_argument("--rotate", metavar="N", type=int, help="N of them, chosen by the commit; all with SHOAL_TEST_LONG=1")
    which.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--list", action="store_true", help="print which ones would be tried, and end")
    parser.add_argument("--fits", action="store_true", help="only check that their patches fit the working tree, and end")
    parser.add_argument("--place", type=Path, default=ROOT / "build" / "bugs", help="where the copy is (build/bugs)")
    arguments = parser.parse_args()
    if not (arguments.bug or arguments.rotate or arguments.all or arguments.list or arguments.fits):
        parser.error("say which bugs: --bug, --rotate or --all")
    return arguments


def main():
    arguments = parse_arguments()
    bugs = [Bug(file) for file in sorted(BUGS.glob("*.patch"))]
    if arguments.bug:
        unknown = set(arguments.bug) - {bug.name for bug in bugs}
        if unknown:
            sys.exit(f"seeded_bugs: no bug is called {', '.join(sorted(unknown))}; --list has them")
        bugs = [bug for bug in bugs if bug.name in arguments.bug]
    elif arguments.rotate and not os.environ.get("SHOAL_TEST_LONG"):
        bugs = chosen(bugs, arguments.rotate, commit())
    if arguments.list:
        for bug in bugs:
            print(f"{bug.name:32} {bug.what}")
        return 0
    if arguments.fits:
        return check_fits(bugs)

    copy = Copy(arguments.place)
    copy.refresh()
    copy.configure()
    passed, missed = {}, 0
    for bug in bugs:
        begin = time.monotonic()
        why = hunt(bug, copy, passed)
        copy.refresh()
        missed += why is not None
        print(f"{bug.name:32} {'caught' if why is None else 'NOT CAUGHT: ' + why}  ({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
