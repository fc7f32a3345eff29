#!/usr/bin/env bash
# packages.sh - install the Debian packages of the groups named (see packages.txt), only those that
# are missing. With --missing only says which. Does nothing, in milliseconds, when all are there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dry=false
[ "${1:-}" = --missing ] && { dry=true; shift; }

wanted=$(awk -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") { print $2 }' "$here/packages.txt" | sort -u)
find_missing() {
    local have
    # shellcheck disable=SC2086
    have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
        awk '$1 == "installed" { print $2 }' | sort -u || true)
    comm -23 <(printf '%s\n' "$wanted") <(printf '%s\n' "$have")
}
missing=$(find_missing)
[ -n "$missing" ] || exit 0
$dry && { printf '%s\n' "$missing"; exit 0; }
# tests/run installs for several parts at once, and apt-get has one lock.
exec 9<"$here/packages.txt"
flock 9
missing=$(find_missing)
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "packages: need root or sudo to install:" $missing >&2; exit 1; }
    sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
policy=/usr/sbin/policy-rc.d
guard=false
clean() {
    rm -f "$log"
    if $guard; then $sudo rm -f "$policy"; fi
}
trap clean EXIT
# The suite runs its own redis-server: the package's system-wide one is not started.
if [ ! -e "$policy" ]; then
    guard=true
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
fi
echo "installing" $missing
{
    $sudo apt-get update -q -o Acquire::Retries=3 &&
        # shellcheck disable=SC2086
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
            -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold $missing
} </dev/null >"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "packages: apt-get failed" >&2; exit 1; }
case " $(echo $missing) " in *' redis-server '*)
    if [ -d /run/systemd/system ]; then $sudo systemctl disable -q redis-server >>"$log" 2>&1 || true; fi ;;
esac
