#!/bin/bash
# Keep Ray and a node on this machine running, in the foreground, until SIGTERM or `ray stop`.
#
#   deploy/machine.sh DIR ray start --head --port=6379 [OPTION]...
#   deploy/machine.sh DIR --cluster NAME --join ray start --address=HOST:PORT [OPTION]...
#   deploy/machine.sh DIR stop     end the one that runs for DIR, and wait until it has ended
#
# DIR is the node's data directory; the options before `ray` are those of `rocketray start`. The Ray
# node gets the label of this disk. A node that ends is started again; when Ray fails, the node ends
# with it, and both are started again. On SIGTERM the node stops first, so that everything
# acknowledged is on disk, and then Ray. One process may do this for DIR: it locks DIR/machine.lock,
# which has its process id.
#
# RAY_ADDRESS names the Ray if others run on this machine.
set -u
data=$1
shift
if [ "${*:-}" = stop ]; then
  lock=$data/machine.lock
  test ! -e "$lock" || flock --nonblock "$lock" true && exit 0
  kill -TERM "$(cat "$lock")"
  exec flock --timeout 150 "$lock" true
fi
options=()
while [ "${1:-}" ] && [ "$1" != ray ]; do
  options+=("$1")
  shift
done
if [ $# = 0 ]; then
  echo "machine.sh: no command starts Ray; usage: machine.sh DIR [OPTION]... ray start [OPTION]..." >&2
  exit 2
fi
disk=$(rocketray disk --data "$data") || exit 1
exec 9>> "$data/machine.lock"
if ! flock --nonblock 9; then
  echo "machine.sh: process $(cat "$data/machine.lock") keeps a node on $data running; stop it first" >&2
  exit 1
fi
echo $$ > "$data/machine.lock"

# How often a raylet asks whether the GCS knows it. If not, the head has lost its state, and the
# raylet ends. Ray's own interval is a minute.
export RAY_raylet_liveness_self_check_interval_ms="${RAY_raylet_liveness_self_check_interval_ms:-5000}"

stopping=
node=
trap 'stopping=yes; test -z "$node" || kill -TERM "$node"' TERM INT

runs() { kill -0 "$1" 2> /dev/null; }

# A signal ends wait, but not the process. One that comes right before wait takes effect after it.
await() {
  local turn
  while runs "$1"; do
    sleep 10 9>&- &
    turn=$!
    wait -n "$1" $turn
    kill $turn
    wait $turn
  done 2> /dev/null
}

# Whether `ray start --block` has this machine's raylet in the cluster, and waits for its end: then
# it has its log of ends open. Before, the raylet may live for minutes and not be joined yet.
has_started() { [[ "$(readlink "/proc/$1/fd/"*)" == */ray_process_exit.log* ]]; }

# A raylet that has lost its head waits for it, a minute by default, and is not replaced meanwhile.
# Not every kernel lists the children of a process, so this reads each one's parent.
has_raylet() {
  local stat line
  for stat in /proc/[0-9]*/stat; do
    read -r line < "$stat" || continue # PID (NAME) STATE PARENT ...; Z and X have ended
    [[ $line != *"(raylet) "[!ZX]" $1 "* ]] || return 0
  done 2> /dev/null
  return 1
}

pause() {
  sleep "$1" 9>&- &
  wait $!
}

# `ray start --block` ends some seconds after Ray failed; after `ray stop` it waits on, without a raylet.
# While it starts, its raylet may be missing, too: it has ended early, and `ray start` notices it late.
was_stopped() {
  local turn
  for turn in {1..10}; do
    runs "$1" && has_started "$1" && ! has_raylet "$1" || return 1
    pause 1
  done
}

until [ "$stopping" ]; do
  "$@" "--labels=rocketray-disk=$disk" --block 9>&- &
  ray=$!
  for _ in {1..600}; do # five minutes: then the node itself says what is wrong
    test ! "$stopping" && ! has_started $ray && runs $ray || break
    pause 0.5
  done
  while [ ! "$stopping" ] && runs $ray; do
    rocketray start --ray-address "${RAY_ADDRESS:-auto}" --data "$data" \
      "${options[@]+"${options[@]}"}" 9>&- &
    node=$!
    test ! "$stopping" || kill -TERM $node
    await $node
    node=
    test "$stopping" || pause 2
    test "$stopping" || ! was_stopped $ray || stopping=yes
  done
  kill -TERM $ray 2> /dev/null
  await $ray
done
exit 0
