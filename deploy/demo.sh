#!/bin/sh
# Starts a server on free ports of this host, has `attend demo` compute on it and show what the
# server counted, and stops the server.
#
#   demo.sh BUILD_DIR
set -eu
build=$1
server_pid=
work=$(mktemp -d)

finish() {
  status=$?
  trap - EXIT INT TERM
  if [ -n "$server_pid" ]; then
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
  if [ "$status" -ne 0 ] && [ -s "$work/server.log" ]; then
    echo "demo: failed; the server's log:" >&2
    cat "$work/server.log" >&2
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# value KEY: one value of the ready file; of a list, the first.
value() {
  /usr/bin/python3 -c '
import json, sys
found = json.load(open(sys.argv[1]))[sys.argv[2]]
print(found[0] if isinstance(found, list) else found)' "$work/ready.json" "$1"
}

echo "== attend-server, on free ports of this host"
"$build/bin/attend-server" --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
  --ready-file "$work/ready.json" >"$work/server.log" 2>&1 &
server_pid=$!
tries=0
until [ -s "$work/ready.json" ]; do
  kill -0 "$server_pid" 2>/dev/null || { echo "demo: the server ended" >&2; exit 1; }
  tries=$((tries + 1))
  [ "$tries" -le 600 ] || { echo "demo: the server is not ready after 60 s" >&2; exit 1; }
  sleep 0.1
done
grpc=$(value grpc)
admin=$(value admin)
echo "gRPC on $grpc, metrics on http://$admin/metrics"

echo
echo "== attend demo"
"$build/bin/attend" --server "$grpc" demo --metrics-url "$admin"

echo
echo "== stopping the server"
kill "$server_pid"
wait "$server_pid" || { status=$?; echo "demo: the server ended with code $status" >&2; exit 1; }
server_pid=
echo "demo: done"
