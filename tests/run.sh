#!/usr/bin/env bash
# Everything that this project holds itself to, in one command: lint, formatting, types, tests.
#
#   bash tests/run.sh [arguments for pytest]
#
# Needs Python 3.11 or newer with pip. The rest is brought along: virtual environments (.venv-test for us, .venv-zarr2
# and .venv-napari for clients that want other libraries), JavaScript clients (.tools), and, where they are missing and
# this is root on a Debian-like system, Chromium, nginx and Node from the system's packages. A second run reuses all of it.
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE # hundreds of servers are started: each would compile all modules anew
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
system_certificates=/etc/ssl/certs/ca-certificates.crt # Node does not look there by itself
[[ -f $system_certificates ]] && export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$system_certificates}

say() { printf '\n== %s\n' "$*"; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys, venv, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "tests/run.sh: no Python 3.11 or newer with pip was found; name one with PYTHON=/path/to/python" >&2
    return 1
}

# environment FOLDER REQUIREMENT...: a virtual environment, made again only when something that it depends on has changed
environment() {
    local folder=$1 stamp
    shift
    stamp="$("$python" --version) $* $(cksum <pyproject.toml)"
    [[ -f $folder/stamp && $(<"$folder/stamp") == "$stamp" ]] && return
    say "installing $folder (some minutes the first time)"
    "$python" -m venv --clear --without-pip "$folder"
    "$python" -m pip --python "$folder/bin/python" install -qq "$@"
    printf '%s' "$stamp" >"$folder/stamp"
}

# system_package PROGRAM PACKAGE...: PROGRAM, from the system's packages where it is missing. RUNLEVEL=1: Debian is not to
# start a service that comes with one.
system_package() {
    local program=$1
    shift
    command -v "$program" >/dev/null && return
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        say "installing $*"
        apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@" >/dev/null && return
    fi
    say "NOTE: $program is missing and cannot be installed from here: install $*, or its tests are skipped"
}

javascript_clients() {
    command -v npm >/dev/null || return 0
    cmp -s tests/js/package.json .tools/package.json && return
    say "installing JavaScript clients"
    rm -rf .tools && mkdir -p .tools/new && cp tests/js/package.json .tools/new/
    if npm install --prefix .tools/new --silent --no-package-lock --fetch-retries 1; then
        mv .tools/new/* .tools/ && rmdir .tools/new
    else
        say "NOTE: npm could not install tests/js/package.json: the tests of JavaScript clients are skipped"
    fi
}

other_clients() {
    environment .venv-zarr2 'zarr==2.18.*' 'numcodecs[msgpack]<0.16' fsspec aiohttp
    environment .venv-napari napari-ome-zarr
    system_package chromium chromium
    system_package nginx nginx-light
    system_package openssl openssl
    system_package node nodejs
    system_package npm npm
    javascript_clients
}

python=$(find_python)
other_clients & # beside the checks below, which need none of them
clients=$!
trap 'wait "$clients"' EXIT # a check that fails leaves nothing half installed behind
environment .venv-test -e '.[test]'

bin=$PWD/.venv-test/bin
say "ruff"
"$bin/ruff" check
"$bin/ruff" format --check
types=$(mktemp)
"$bin/mypy" >"$types" 2>&1 & # beside the tests: a minute on one processor, and far less where they wait for something
mypy=$!
trap - EXIT
wait "$clients"
say "pytest"
# Tests wait for servers and clocks, so two processes more than there are processors keep these busy; each takes a GiB.
processes=$(($(getconf _NPROCESSORS_ONLN) + 2))
processes=${TEST_PROCESSES:-$((processes < 8 ? processes : 8))}
status=0
"$bin/pytest" --numprocesses "$processes" --dist loadfile --no-loadscope-reorder "$@" || status=$?
say "mypy"
wait "$mypy" || status=1
cat "$types"
rm "$types"
exit "$status"
