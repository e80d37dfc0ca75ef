#!/bin/sh
# Run kube-router until it ends or SIGTERM arrives; after SIGTERM, policies are no longer enforced.
stopping=
trap 'stopping=yes; kill "$child"' TERM
/kube-router "$@" &
child=$!
wait "$child"
code=$?
# A crash keeps the rules: the next start of the container updates them.
[ "$stopping" ] || exit "$code"
wait "$child"
exec /clean.sh
