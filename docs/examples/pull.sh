#!/bin/sh
# One agent answers once, and twenty readers pull the answer: all get the same bytes, and nobody was told to wait.
set -eu
a=$ZOEFS_MOUNT/agents/pulled

settled() { while w=$(cat "$a/wait") && [ -z "$w" ]; do :; done; }

mkdir "$a"
trap 'echo stop > "$a/ctl"; settled; rmdir "$a"' EXIT
cat > "$a/spec" <<'END'
backend = "exec"
argv = ["seq", "20000"]
END

echo go > "$a/in"
settled
for reader in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    cksum < "$a/out" &
done | sort | uniq -c
