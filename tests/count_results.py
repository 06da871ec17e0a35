"""Counts test results: reads Meson's testlog.json files and prints a line per test and the sums.

usage: count_results.py LABEL=TESTLOG.json ...   (prints "PASSED FAILED SKIPPED" as its last line)

A doctest program counts by its cases, any other test as one.
"""
import json
import re
import sys

CASES = re.compile(r"\[doctest\] test cases: *(\d+) \| *(\d+) passed \| *(\d+) failed")


def main():
    passed = failed = skipped = 0
    for argument in sys.argv[1:]:
        label, path = argument.split("=", 1)
        with open(path, encoding="utf-8") as log:
            results = [json.loads(line) for line in log]
        for result in results:
            name = f"{label} {result['name']}".strip()
            seconds = f"{result['duration']:.1f} s"
            cases = CASES.findall(result.get("stdout", ""))
            good, bad, skip = 0, 0, 0
            if cases:
                good, bad = int(cases[-1][1]), int(cases[-1][2])
            if result["result"] == "SKIP":
                skip = 1
                reason = (result.get("stdout", "") + result.get("stderr", "")).strip()
                print(f"skipped  {name}: {reason.splitlines()[-1] if reason else ''}")
            elif result["result"] == "OK":
                good = good or 1
                print(f"ok       {name}: {good} passed ({seconds})")
            else:
                bad = bad or 1
                print(f"FAILED   {name}: {result['result']}, {good} passed, {bad} failed ({seconds})")
                print(result.get("stdout", "")[-20000:])
                print(result.get("stderr", "")[-20000:])
            passed, failed, skipped = passed + good, failed + bad, skipped + skip
    print(passed, failed, skipped)


main()
