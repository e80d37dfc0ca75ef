# Finds the interpreters that `./dev` and `./pants` run on, and installs those that can be had.
# Both read this file in; they set `cache` and have a function `say`.

# Prints each directory that may hold python$1: PATH, pyenv, uv. Shims of pyenv refuse where no
# version is chosen, yet they tell where the interpreters are, also when HOME points elsewhere.
python_directories() {
  old_ifs=$IFS
  IFS=:
  for directory in $PATH; do
    case $directory in
    */.pyenv/shims | */.pyenv/plugins/*) ;;
    *) printf '%s\n' "$directory" ;;
    esac
  done
  for directory in $PATH; do
    case $directory in
    */.pyenv/shims) ls -d "${directory%/shims}/versions/$1".*/bin 2>/dev/null || : ;;
    esac
  done
  IFS=$old_ifs
  for root in "${PYENV_ROOT:-}" "${HOME:-}/.pyenv"; do
    if [ -n "$root" ]; then ls -d "$root/versions/$1".*/bin 2>/dev/null || :; fi
  done
  for root in "$cache/python" "${UV_PYTHON_INSTALL_DIR:-}" \
    "${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/python"; do
    if [ -n "$root" ]; then ls -d "$root/cpython-$1".*/bin 2>/dev/null || :; fi
  done
}

# Prints the path of a python$1 that can make virtual environments, or fails.
find_python() {
  python_directories "$1" | while IFS= read -r directory; do
    if "$directory/python$1" -c 'import ensurepip, ssl, venv' >/dev/null 2>&1; then
      printf '%s\n' "$directory/python$1"
      break
    fi
  done | grep .
}

# Installs Python $1 where Debian has it and we may, else by uv where it is there; fails otherwise.
install_python() {
  install_from_debian "$1" || install_by_uv "$1" "$(command -v uv || :)"
}

install_from_debian() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
  apt-get update >/dev/null 2>&1 || :
  apt-cache show "python$1-venv" >/dev/null 2>&1 || return 1
  say "Installing Python $1 with apt-get."
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    "python$1" "python$1-venv" >&2
}

# Installs Python $1 into the cache by the program $2, which is uv or nothing.
install_by_uv() {
  [ -n "$2" ] || return 1
  say "Installing Python $1 with uv."
  # Nothing is put into the user's own directories.
  UV_PYTHON_INSTALL_BIN=0 UV_PYTHON_INSTALL_DIR=$cache/python \
    "$2" python install --no-progress "$1" >&2
}
