# The same client as writer.py, as a person would write it in bash; the same LOG.
# Usage: bash writer.sh MOUNT LOG STOP NAME SEED POOL AGENT...     POOL: a file of text, 1 MiB or more
set -u
agents=$1/agents log=$2 stop=$3 name=$4 RANDOM=$5 pool=$6
shift 6
here=("$@")
sizes=(0 300 4000 4085 4086 20000 200000 1000000)
ways=(in printf cp mv)
marks=(o o o x)
text=$(mktemp)
trap 'rm -f "$text"' EXIT

note() { # FATE
	printf '{"token":"%s","agent":"%s","way":"%s","sha":"%s","bytes":%d,"fate":"%s"}\n' \
		"$token" "$agent" "$way" "$sha" "$bytes" "$1" >>"$log"
}
failed() { echo '{"errno":"bash"}' >>"$log"; }
served() { [ -n "$(cat "$agents/$agent/status" 2>/dev/null)" ]; }
look() { # prints what the receipt says, nothing where there is none; waits while nobody serves
	local said
	while :; do
		if served; then
			said=$(sed -n '1s/^receipt: //p' "$agents/$agent/inbox/$token" 2>/dev/null)
			case $said in
			'') served && return ;;
			writing) ;;
			*) echo "$said"; return ;;
			esac
		fi
		sleep 0.02
	done
}

n=0
while [ ! -e "$stop" ]; do
	n=$((n + 1))
	agent=${here[RANDOM % ${#here[@]}]}
	printf -v token '%s-%06d%s' "$name" "$n" "${marks[RANDOM % 4]}"
	way=${ways[RANDOM % 4]} size=${sizes[RANDOM % 8]} from=$((RANDOM + 1))
	{ printf '%s ' "$token"; tail -c "+$from" "$pool" | head -c "$size"; printf .; } >"$text"
	read -r sha _ < <(sha256sum <"$text")
	bytes=$(wc -c <"$text")
	[ "$bytes" -ge 4096 ] || line=$(cat "$text")
	note begun
	fate=
	until [ -n "$fate" ]; do
		until served; do failed; sleep 0.02; done
		inbox=$agents/$agent/inbox
		case $way in
		in) if cat "$text" 2>/dev/null >"$agents/$agent/in"; then fate=accepted; else failed; fate=unknown; fi ;;
		printf) # one line is one write; below 4,096 bytes it counts though nobody sees how close() went
			if [ "$bytes" -ge 4096 ]; then cp "$text" "$inbox/$token" && fate=accepted
			elif (set -C; printf %s "$line" >"$inbox/$token"); then fate=accepted
			fi ;;
		cp) cp "$text" "$inbox/$token" && fate=accepted ;;
		mv) cp "$text" "$inbox/.$token" && mv "$inbox/.$token" "$inbox/$token" && fate=accepted ;;
		esac 2>/dev/null
		if [ -z "$fate" ]; then
			failed
			case $(look) in
			'') ;;
			lost) fate=cut ;;
			*) fate=accepted ;;
			esac
		fi
	done
	note "$fate"
	sleep "0.$((RANDOM % 4))"
done
