#!/bin/sh
# Five reviewers read the same text at the same time; one `cat` hands all they found to the developer.
set -eu
A=$ZOEFS_MOUNT/agents made=

settled() { while w=$(cat "$A/$1/wait") && [ -z "$w" ]; do :; done; }

trap 'for n in $made; do echo stop > "$A/$n/ctl"; settled "$n"; rmdir "$A/$n"; done' EXIT
agent() { # agent NAME SED-SCRIPT
    mkdir "$A/$1"
    made="$made $1"
    cat > "$A/$1/spec" <<END
backend = "exec"
argv = ["sed", "$2"]
END
}

agent dev "s/^/to do: /"
for n in 1 2 3 4 5; do agent "r$n" "s/^/reviewer $n read /"; done

for n in 1 2 3 4 5; do echo "a draft" > "$A/r$n/in"; done
for n in 1 2 3 4 5; do settled "r$n"; done
cat "$A"/r[1-5]/out > "$A/dev/in"
settled dev
cat "$A/dev/out"
