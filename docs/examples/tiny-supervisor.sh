#!/bin/sh
# A loop that reads `status` and writes `ctl` heals an agent. This one cannot start: its directory is missing.
set -eu
a=$ZOEFS_MOUNT/agents/flaky
parent=$(mktemp -d)

settled() { while w=$(cat "$a/wait") && [ -z "$w" ]; do :; done; }

mkdir "$a"
trap 'echo stop > "$a/ctl"; settled; rmdir "$a"; rm -r "$parent"' EXIT
cat > "$a/spec" <<END
backend = "exec"
argv = ["wc", "-w"]
cwd = "$parent/work"
END
echo "count these four words" > "$a/in"

for attempt in 1 2 3; do
    settled
    [ "$w" = failed ] || break
    echo "attempt $attempt: flaky is failed, $(grep ^reason "$a/stat"); restart"
    mkdir -p "$parent/work"
    echo restart > "$a/ctl"
done
echo "flaky is $w and says $(cat "$a/out")"
