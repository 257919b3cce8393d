#!/bin/sh
# An agent is made, asked, read and taken away again. `exec` makes any program an agent: here it is sed.
set -eu
a=$ZOEFS_MOUNT/agents/hello

settled() { # print the status once nothing more will happen by itself
    while w=$(cat "$a/wait") && [ -z "$w" ]; do :; done
    echo "$w"
}

mkdir "$a"
trap 'echo stop > "$a/ctl"; settled > /dev/null; rmdir "$a"' EXIT
cat > "$a/spec" <<'END'
backend = "exec"
argv = ["sed", "s/^/hello, /"]
END

echo world > "$a/in"
[ "$(settled)" = await ] && cat "$a/out"
