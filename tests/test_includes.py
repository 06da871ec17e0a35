#!/usr/bin/env python3
"""Checks which folders and libraries each source file includes.

Usage: test_includes.py ROOT. Prints file:line for each violation and fails if there is any.
"""
import pathlib
import re
import sys

# Folders that a folder may include, besides itself.
ALLOWED = {
    'core': set(),
    'autograd': {'core'},
    'nn': {'core', 'autograd'},
    'models': {'core', 'autograd', 'nn'},
    'text': {'core'},
    'optim': {'core', 'autograd'},
    'train': {'core', 'autograd', 'nn', 'models', 'text', 'optim'},
}
EVERYTHING = set(ALLOWED)
ALLOWED.update({'examples': EVERYTHING, 'bench': EVERYTHING, 'tests': EVERYTHING | {'examples'}})

# What stays behind the headers that users include: slow to compile, or a choice they need not share.
PRIVATE = re.compile(r'nlohmann/|Eigen/|iostream$|filesystem$|regex$')
# Behind a Tensor, for the folders that make it.
INTERNAL = {'core/tensor_impl.h': {'core', 'autograd'}, 'autograd/graph.h': {'autograd'}}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
SUFFIXES = {'.h', '.cpp', '.cu', '.cuh'}


def violations_of(path, folder, text):
    """Yields (line number, sentence) for each include that is not allowed."""
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        bracket, target = match.groups()
        if bracket == '<':
            public = path.endswith(('.h', '.cuh')) and folder not in ('examples', 'bench', 'tests')
            if public and PRIVATE.match(target):
                yield number, f'<{target}> in a public header; include it in a .cpp file'
            continue
        other = target.split('/')[0]
        if '/' not in target and folder in ('examples', 'bench'):
            continue  # a program's own files, as in a program outside this tree
        if '/' not in target or target.startswith('.') or other not in ALLOWED:
            yield number, f'"{target}" is not rooted at the repository'
        elif other != folder and other not in ALLOWED[folder]:
            yield number, f'{folder}/ must not include "{target}"'
        elif folder not in INTERNAL.get(target, {folder}) and folder != 'tests':
            yield number, f'"{target}" is private to {" and ".join(sorted(INTERNAL[target]))}'


def check_self():
    """The rules above catch what they are for."""
    def count(path, text):
        return len(list(violations_of(path, path.split('/')[0], text)))

    assert count('core/a.h', '#include "core/b.h"\n#include <vector>') == 0
    assert count('core/a.cpp', '#include "autograd/node.h"') == 1
    assert count('autograd/a.cpp', '#include "nn/linear.h"') == 1
    assert count('optim/a.cpp', '#include "nn/linear.h"') == 1
    assert count('text/a.cpp', '#include "autograd/node.h"') == 1
    assert count('train/a.cpp', '#include "optim/adamw.h"\n#include "text/csv.h"') == 0
    assert count('core/a.cpp', '#include "b.h"\n#include "../core/b.h"') == 2
    assert count('core/a.h', '#include <nlohmann/json.hpp>\n#include <iostream>') == 2
    assert count('core/a.cpp', '#include <nlohmann/json.hpp>') == 0
    assert count('nn/a.cpp', '#include "autograd/graph.h"') == 1
    assert count('examples/a/a.cpp', '#include "b.h"\n#include "train/trainer.h"') == 0


def main(root):
    check_self()
    found = files = 0
    for folder in ALLOWED:
        for path in sorted((root / folder).rglob('*')):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            files += 1
            name = path.relative_to(root).as_posix()
            for line, sentence in violations_of(name, folder, path.read_text(encoding='utf-8')):
                print(f'{name}:{line}: {sentence}')
                found += 1
    print(f'{files} files, {found} includes that are not allowed')
    return 1 if found or not files else 0


if __name__ == '__main__':
    sys.exit(main(pathlib.Path(sys.argv[1])))
