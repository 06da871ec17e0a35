#!/usr/bin/env python3
"""Breaks the real kernels in one place after the other: the emulated tests must fail each time.

usage: run.py BUILD [--from N] [--seconds S]

BUILD is an emulated build folder of this tree (-Dcuda=emulated). Each entry of mutations.json is a
file, what stands there once, what to write instead, and the source of the tests that must fail. The
file is put back after each. Takes minutes, so the test command leaves it out.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TARGET = "tests/core/cuda/test_core_cuda"


def build(folder):
    return subprocess.run(["ninja", "-C", folder, TARGET], capture_output=True, text=True)


# What ended the tests: the emulator's finding, the first case that failed, or the signal; None if nothing.
def failure(folder, suite):
    command = [pathlib.Path(folder) / TARGET, f"--source-file=*cuda/test_{suite}.cpp", "--abort-after=1"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
    except subprocess.TimeoutExpired:
        return "the tests did not end"
    if result.returncode == 0:
        return None
    lines = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("cuda emulator:")]
    said += [line for line in lines if "ERROR" in line]
    return (said or lines or [f"status {result.returncode}"])[0][:140]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--from", dest="first", type=int, default=1, help="number of the first mutation")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no other after these")
    options = parser.parse_args()
    mutations = json.loads((HERE / "mutations.json").read_text())
    began = time.monotonic()
    caught, survived = 0, []
    for number, (name, old, new, suite) in enumerate(mutations, 1):
        if number < options.first or time.monotonic() - began > options.seconds:
            continue
        file = ROOT / name
        text = file.read_text()
        if text.count(old) != 1:
            sys.exit(f"mutation {number}: {name} has {text.count(old)} times, it must have once: {old}")
        file.write_text(text.replace(old, new))
        try:
            built = build(options.build)
            if built.returncode != 0:
                sys.exit(f"mutation {number} does not compile:\n{built.stdout[-3000:]}")
            found = failure(options.build, suite)
        finally:
            file.write_text(text)
        caught += found is not None
        if found is None:
            survived.append(number)
        print(f"{'caught  ' if found else 'SURVIVED'} {number} {name}: {found}", flush=True)
    build(options.build)
    print(f"{caught} caught, {len(survived)} survived")
    return 1 if survived else 0


sys.exit(main())
