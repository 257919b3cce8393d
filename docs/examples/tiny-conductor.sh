#!/bin/sh
# A review cycle: dev drafts, five reviewers look for a typo each, dev applies what they say, until there is no issue.
A=$ZOEFS_MOUNT/agents made=
settled() { while w=$(cat "$A/$1/wait") && [ -z "$w" ]; do :; done; }
trap 'for n in $made; do echo stop > "$A/$n/ctl"; settled "$n"; rmdir "$A/$n"; done' EXIT
agent() { # agent NAME SCRIPT
    mkdir "$A/$1" && made="$made $1" && cat > "$A/$1/spec" <<END || exit
backend = "exec"
argv = ["sh", "-c", "$2"]
END
}
ask() { cat > "$A/$1/inbox/.$2" && mv "$A/$1/inbox/.$2" "$A/$1/inbox/$2"; } # ask NAME ID, the prompt on stdin
answer() { # answer NAME ID: wait for the end of that turn, print what it said
    until grep -qE '^receipt: (done|failed|lost|cancelled)$' "$A/$1/inbox/$2"; do sleep 0.05; done
    sed '1,/^$/d' "$A/$1/inbox/$2"
}
agent dev "if [ -f draft ]; then grep ^s/ | sed -i -f - draft; else cat > draft; fi; cat draft"
for t in teh/the adn/and dgo/dog cta/cat nad/and; do agent "r-${t%/*}" "grep -q ${t%/*} && echo s/$t/ || echo no issues"; done
echo "teh cta adn teh dgo" | ask dev draft-1
for n in 1 2 3 4; do
    echo "draft $n: $(answer dev "draft-$n")"
    for r in ${made# dev}; do ask "$r" "review-$n" < "$A/dev/out"; done
    reviews=$(for r in ${made# dev}; do answer "$r" "review-$n"; done)
    echo "$reviews" | sort | uniq -c
    [ "$(echo "$reviews" | sort -u)" = "no issues" ] && exit
    echo "$reviews" | ask dev "draft-$((n + 1))"
done
exit 1
