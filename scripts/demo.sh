#!/bin/sh
# The main job on the embedded default: mount, agents, a review cycle, a killed supervisor, clean unmount.
# Usage: demo.sh BIN     the directory that holds `zoefs`. Agents are `exec` agents: no account is needed.
set -eu
cd "$(dirname "$0")/.."
PATH=$(cd "$1" && pwd):$PATH
place=$(cd "$(mktemp -d)" && pwd -P)
export ZOEFS_HOME="$place/home" ZOEFS_MOUNT="$place/mount"
unset ZOEFS_AGENT
A=$ZOEFS_MOUNT/agents

step() { printf '\n--- %s\n' "$*"; }
run() { echo "\$ $*" && sh -c "$*"; }
left() { # what still runs or is mounted for this HOME
    grep -F " $ZOEFS_MOUNT " /proc/self/mountinfo || true
    for env in /proc/[0-9]*/environ; do
        grep -qzxF "ZOEFS_HOME=$ZOEFS_HOME" "$env" 2> /dev/null || continue
        pid=${env#/proc/} pid=${pid%/environ}
        echo "pid $pid: $(tr '\0' ' ' < "/proc/$pid/cmdline")"
    done
}
trap 'zoefs down > /dev/null 2>&1 || true; rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

step "start: the mount and the supervisor"
run zoefs up

step "an agent: made, asked, read, taken away ($(pwd)/docs/examples/hello.sh)"
run sed -n "'/^mkdir/,\$p'" docs/examples/hello.sh
run sh docs/examples/hello.sh

step "a review cycle: one developer, five reviewers (docs/examples/tiny-conductor.sh)"
run sh docs/examples/tiny-conductor.sh

step "the supervisor is killed in the middle of a turn, and the next one adopts what still runs"
run zoefs spawn slow --backend exec --set "'argv=[\"sh\", \"-c\", \"sleep 3; echo still here, turn {turn}\"]'"
run zoefs send slow "'are you there?'" --id k1
until grep -q "^receipt: accepted\|^receipt: sent" "$A/slow/inbox/k1"; do sleep 0.05; done
pid=$(head -n 1 "$ZOEFS_HOME/supervisor.lock")
run kill -9 "$pid"
run zoefs up
run zoefs wait slow --timeout 30
run cat "\$ZOEFS_MOUNT/agents/slow/inbox/k1"
run zoefs ls
run zoefs retire --stop slow

step "end"
run zoefs down
rest=$(left)
[ -z "$rest" ] || { echo "demo: this is left:" && echo "$rest" && exit 1; }
echo "nothing is mounted, nothing runs"
