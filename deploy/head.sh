#!/bin/bash
# Keep Ray's head and the node on it running, in the foreground, until SIGTERM or `ray stop`.
#
#   deploy/head.sh DIR ray start --head --port=6379 [OPTION]...
#
# DIR is the node's data directory. Its Ray node gets the label of this disk. A node that ends is
# started again; when Ray fails, the node ends with it, and both are started again. On SIGTERM the
# node stops first, so that everything acknowledged is on disk, and then Ray. One process may do
# this for DIR: it locks DIR/head.lock, which has its process id.
#
# RAY_ADDRESS names the Ray if others run on this machine.
set -u
data=$1
shift
disk=$(rocketray disk --data "$data") || exit 1
exec 9>> "$data/head.lock"
if ! flock --nonblock 9; then
  echo "head.sh: process $(cat "$data/head.lock") keeps a node on $data running; stop it first" >&2
  exit 1
fi
echo $$ > "$data/head.lock"

stopping=
node=
trap 'stopping=yes; test -z "$node" || kill -TERM "$node"' TERM INT

answers() { timeout 60 ray health-check > /dev/null 2>&1 9>&-; }
runs() { kill -0 "$1" 2> /dev/null; }
await() { while runs "$1"; do wait "$1"; done; } # a signal ends wait, but not the process

pause() {
  sleep "$1" 9>&- &
  wait $!
}

until [ "$stopping" ]; do
  "$@" "--labels=rocketray-disk=$disk" --block 9>&- &
  ray=$!
  until [ "$stopping" ] || answers || ! runs $ray; do pause 0.5; done
  while [ ! "$stopping" ] && runs $ray; do
    rocketray start --ray-address "${RAY_ADDRESS:-auto}" --data "$data" 9>&- &
    node=$!
    test ! "$stopping" || kill -TERM $node
    await $node
    node=
    test "$stopping" || pause 2
    # `ray start --block` ends when Ray fails; after `ray stop` it waits on.
    ! runs $ray || answers || stopping=yes
  done
  kill -TERM $ray 2> /dev/null
  await $ray
done
exit 0
