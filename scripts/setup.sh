#!/bin/sh
# Set-up on Debian or Ubuntu, or wherever the tools are there already: system packages, virtual environment, install.
# Usage: setup.sh VENV [EXTRA...]     EXTRA: dev (what the tests need), ci (what only CI needs)
# Does only what is missing, so it may be run again. Needs root or sudo for system packages, and says which.
set -eu
venv=$1
shift
cd "$(dirname "$0")/.."

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

[ -c /dev/fuse ] || die "no /dev/fuse: zoefs is a FUSE file system and cannot run without it. On a machine: modprobe fuse.
In a container: start it with --device /dev/fuse --cap-add SYS_ADMIN."
[ -r /dev/fuse ] && [ -w /dev/fuse ] || die "/dev/fuse is there, and $(id -un) may not open it: only root can mount here"

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo > /dev/null; then sudo -- "$@"
    else die "this needs root, and there is no sudo: $*"
    fi
}

updated=
install() { # install PACKAGE...: by apt-get
    command -v apt-get > /dev/null || die "missing here: $*. Install what these Debian packages hold, then run this again."
    say "system packages: $*"
    if [ -z "$updated" ]; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q < /dev/null > /dev/null
        updated=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" < /dev/null > /dev/null
}

usable() { # usable PYTHON: new enough, with venv and headers
    "$1" -c '
import ensurepip, os, sys, sysconfig, venv
sys.exit(sys.version_info < (3, 11) or not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))
' 2> /dev/null
}

find_python() {
    for python in python3 python3.13 python3.12 python3.11; do
        if usable "$python"; then echo "$python"; return; fi
    done
}

missing=
need() { command -v "$1" > /dev/null || missing="$missing $2"; } # need COMMAND PACKAGE
need fusermount3 fuse3
need gcc gcc
need pkg-config pkg-config
pkg-config --exists fuse3 2> /dev/null || missing="$missing libfuse3-dev"
for extra; do
    case $extra in
    ci)
        need sshfs sshfs
        need sshd openssh-server
        need strace strace
        need tmux tmux
        need npm npm
        ;;
    dev)
        need file file
        need git git
        need rsync rsync
        need vim vim
        ;;
    *) die "no extra $extra" ;;
    esac
done
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    if [ -z "$python" ]; then
        install python3 python3-venv python3-dev
        python=$(find_python)
    fi
    if [ -z "$python" ]; then
        install python3.11 python3.11-venv python3.11-dev
        python=$(find_python)
    fi
    [ -n "$python" ] || die "no Python 3.11 or newer with venv and headers"
    say "virtual environment: $venv, $("$python" -V)"
    "$python" -m venv "$venv"
fi

extras=
for extra; do [ "$extra" != dev ] || extras="[dev]"; done
stamp="$venv/.zoefs$extras"
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    say "install zoefs$extras into $venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -e ".$extras" < /dev/null
    touch "$stamp"
fi
say "ready"
