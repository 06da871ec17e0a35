#!/usr/bin/env python3
"""Breaks the real kernels in one place after the other: the emulated tests must notice each time.

usage: run.py BUILD [--numbers 1-7,12] [--folder DIR]

BUILD is an emulated build folder of this tree (-Dcuda=emulated). All is done in a copy of both, where the
tests must pass at first. An entry of mutations.json is

  file, old, new   what is changed: `old` stands in the file once
  target, cases    the test program, and doctest's options that choose its cases

A mutation is caught by a finding of the emulator, or by a test case that fails with an assertion or an
error; one that does not compile, makes the tests hang or kills them without a finding is not. Takes many
minutes, so the test command leaves it out.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MUTATIONS = HERE / "mutations.json"


class Copy:
    """Tree and build folder, copied beside each other as they were: a build's paths are relative."""

    def __init__(self, build, folder):
        build = pathlib.Path(build).resolve()
        common = os.path.commonpath([build, ROOT])
        self.root = folder / os.path.relpath(ROOT, common)
        self.build = folder / os.path.relpath(build, common)
        files = subprocess.run(["git", "-C", ROOT, "ls-files", "-coz", "--exclude-standard"], check=True,
                               capture_output=True, text=True).stdout
        for name in filter(None, files.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        shutil.copytree(build, self.build, symlinks=True, dirs_exist_ok=True)

    def make(self, targets):
        """What the compiler said if it failed."""
        made = subprocess.run(["ninja", "-C", self.build, *targets], capture_output=True, text=True)
        return None if made.returncode == 0 else made.stdout[-3000:]

    def test(self, target, cases):
        """(whether the tests noticed something, what)"""
        command = [self.build / target, *cases.split(), "--abort-after=1", "--no-colors"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600,
                                    cwd=self.build)
        except subprocess.TimeoutExpired:
            return False, "the tests do not end"
        lines = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
        said = [line for line in lines if line.startswith("cuda emulator:")] + \
               [line for line in lines if "ERROR:" in line and "CRASHED" not in line]
        if result.returncode != 0:
            return bool(said), (said or [f"status {result.returncode} without a finding"])[0][:110]
        passed = [line for line in lines if "test cases:" in line]
        if not passed or " 0 passed" in passed[-1]:
            sys.exit(f"{target} {cases}: there are no such tests")
        return False, "all tests pass"


def numbers(text):
    """The numbers in 1-7,12."""
    ends = [part.split("-") for part in text.split(",")]
    return {number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--numbers", type=numbers, help="of the mutations, all if not given: 1-7,12")
    parser.add_argument("--folder", type=pathlib.Path,
                        help="where to copy to and to leave the copy; if not given, a new one that is removed")
    options = parser.parse_args()
    mutations = [(number, entry) for number, entry in enumerate(json.loads(MUTATIONS.read_text()), 1)
                 if options.numbers is None or number in options.numbers]
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="mutations-"))
    try:
        return run(Copy(options.build, folder), mutations)
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


def run(copy, mutations):
    for number, entry in mutations:
        if (copy.root / entry["file"]).read_text().count(entry["old"]) != 1:
            sys.exit(f"mutation {number}: {entry['file']} must have this once: {entry['old']}")
    failed = copy.make(sorted({entry["target"] for _, entry in mutations}))
    if failed:
        sys.exit(f"the tree as it is does not compile:\n{failed}")
    for target, cases in sorted({(entry["target"], entry["cases"]) for _, entry in mutations}):
        noticed, what = copy.test(target, cases)
        if what != "all tests pass":
            sys.exit(f"the tree as it is fails {target} {cases}: {what}")
        print(f"passes    the tree as it is: {target} {cases}", flush=True)
    caught, others = 0, []
    for number, entry in mutations:
        file = copy.root / entry["file"]
        text = file.read_text()
        file.write_text(text.replace(entry["old"], entry["new"]))
        failed = copy.make([entry["target"]])
        noticed, what = (False, "does not compile") if failed else copy.test(entry["target"], entry["cases"])
        file.write_text(text)
        caught += noticed
        if not noticed:
            others.append(number)
        print(f"{'caught   ' if noticed else 'NOT CAUGHT'} {number} {entry['file']}: {what}", flush=True)
    print(f"{caught} of {len(mutations)} caught" + (f"; not {others}" if others else ""))
    return 1 if others else 0


sys.exit(main())
