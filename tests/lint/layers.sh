#!/usr/bin/env bash
# layers.sh - each search must find nothing (style 2.9): only the wrapper includes the wrapped, a
# library knows no service, and what is dangerous in C stays out. Prints what it found; exit 1.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
found=0
none() {
    local why=$1 lines
    shift
    lines=$(git grep "$@") || return 0
    printf '%s:\n%s\n' "$why" "$lines"
    found=1
}

none "gRPC outside common/rpc" -ln '#include <grpc/' -- '*.[ch]' ':!common/rpc' ':!tests'
none "curl outside common/http" -ln '#include <curl/' -- '*.[ch]' ':!common/http' ':!tests'
none "hiredis outside common/redis" -ln '#include <hiredis/' -- '*.[ch]' ':!common/redis' ':!tests'
none "libarchive or libyaml outside services/skills/bundle" -lnE '#include <(archive|archive_entry|yaml)\.h>' -- '*.[ch]' ':!services/skills/bundle' ':!tests'
none "a service seen from below" -ln '#include "services/' -- common proto
none "functions without a bound" -nE '(^|[^A-Za-z0-9_.>"])(strcpy|strcat|sprintf|gets|atoi|atol|strtok|alloca|system)\(' -- '*.[ch]'
none "fork outside the spawner" -nE '(^|[^A-Za-z0-9_.>"])(fork|vfork|clone|clone3)\(' -- '*.[ch]' ':!services/adapter-local/spawner' ':!tests'
exit $found
