#!/bin/sh
# check_install.sh BUILD: installs library and headers into a temporary place, compiles every header on its own
# and then linear.cpp against it with pkg-config, and runs that.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
cxx=${CXX:-c++}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

meson install -C "$build" --no-rebuild --quiet --tags devel --destdir "$place"
pc=$(find "$place" -name minim.pc)
test -n "$pc" || { echo "minim.pc is not installed"; exit 1; }
installed=$place$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --variable=prefix minim)
export PKG_CONFIG_PATH="$(dirname "$pc")"
flags() { pkg-config --define-variable=prefix="$installed" "$@" minim; }

cd "$installed/include/minim"
find . -name '*.h' | sed 's|^\./||' | sort > "$place/headers"
test -s "$place/headers" || { echo "no header is installed"; exit 1; }
# shellcheck disable=SC2046
xargs -P "$(nproc)" -I HEADER sh -c 'echo "#include \"HEADER\"" |
  "$@" -x c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only - ||
  { echo "HEADER does not compile on its own from the installed place"; exit 1; }' \
  sh $cxx $(flags --cflags) < "$place/headers"
echo "$(wc -l < "$place/headers") headers compile on their own"

cd "$place"
# shellcheck disable=SC2046
$cxx -std=c++20 -O1 "$here/linear.cpp" -o linear $(flags --cflags --libs)
./linear
