# Shared by quickstart and tests/run: packages and build folders. To be sourced.

build_packages=(g++ meson ninja-build pkg-config libfmt-dev libutf8proc-dev libeigen3-dev
                nlohmann-json3-dev libcli11-dev)
# ccache compiles once what build folders have in common.
# clang builds what is tested with sanitizers, in half of g++'s time; libclang-rt-14-dev has them.
test_packages=("${build_packages[@]}" doctest-dev ccache clang clang-tidy clang-format libclang-rt-14-dev
               libomp-dev python3)

# Installs those of the given Debian packages that are missing; asks nothing, says what it does.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "Installing: ${missing[*]}"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
}

# Sets a build folder up and builds it, or some of its targets; prints the log only on failure.
#   build_in FOLDER [MESON_OPTION ...] [-- TARGET ...]
build_in() {
  local folder=$1 options=() log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  log=$(mktemp)
  echo "Building in $folder/ (minutes the first time, seconds after that) ..."
  local setup=(meson setup "$folder" "${options[@]}")
  [ -f "$folder/build.ninja" ] && setup=(meson setup --reconfigure "$folder" "${options[@]}")
  if ! "${setup[@]}" >"$log" 2>&1 || ! ninja -C "$folder" "$@" >"$log" 2>&1; then
    cat "$log" >&2
    echo "The build in $folder/ failed; the log is above." >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
