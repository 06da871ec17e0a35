#!/bin/sh
# check_install.sh BUILD: installs library and headers into a temporary place, compiles the headers on their own
# and then linear.cpp against it with pkg-config, and runs that.
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
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
# Those that a source of the library begins with have shown there that they compile on their own.
while read -r header; do
  source=$root/${header%.h}.cpp
  [ -f "$source" ] && [ "$(grep -m 1 '^#include' "$source")" = "#include \"$header\"" ] || echo "$header"
done < "$place/headers" > "$place/alone"
sed 's|.*|#include "&"|' "$place/headers" > "$place/all.cpp"
# shellcheck disable=SC2046
$cxx -std=c++20 -Wall -Wextra -Werror -fsyntax-only $(flags --cflags) "$place/all.cpp" ||
  { echo "the installed headers do not compile together"; exit 1; }
# shellcheck disable=SC2046
xargs -P "$(nproc)" -I HEADER sh -c 'echo "#include \"HEADER\"" |
  "$@" -x c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only - ||
  { echo "HEADER does not compile on its own from the installed place"; exit 1; }' \
  sh $cxx $(flags --cflags) < "$place/alone"
echo "$(wc -l < "$place/headers") headers compile, $(wc -l < "$place/alone") of them on their own"

cd "$place"
# shellcheck disable=SC2046
$cxx -std=c++20 -O1 "$here/linear.cpp" -o linear $(flags --cflags --libs)
./linear
