# The keeper: the smallest process between the supervisor and a CLI, so that neither needs the other to live.
# Usage: sh keeper.sh AGENT_DIR INCARNATION BOOT CWD FILES PROGRAM [ARGUMENT...]
# Descriptors given: 1 raw (append) · 2 err (append) · 7 the CLI's stdin · 8 the FIFO held open (stream) · 9 the lock
dir=$1 inc=$2 boot=$3 cwd=$4 files=$5
shift 5
trap : HUP INT TERM
trap 'exec 8>&-' USR1
mark() { # the fields of /proc/PID/stat from the third on; the start time is the 22nd of all
	set -- ${1##*) }
	echo "$$ ${20} $inc $boot" >"$dir/pid"
}
read -r stat <"/proc/$$/stat" && mark "$stat" || exit 70
cd "$cwd" || exit 71
[ -z "$files" ] || ulimit -S -n "$files" || exit 72 # the supervisor raised it for itself alone
env --default-signal=INT,QUIT -- "$@" <&7 7<&- 8>&- 9>&- &
cli=$!
exec 7<&- 1>&-
while :; do
	wait "$cli"
	rc=$?
	[ "$rc" -gt 128 ] && kill -0 "$cli" 2>/dev/null || break
done
echo "$rc" 1<>"$dir/exit/$inc" # in place: its block was reserved when the disk had room
