# In front of every script: is this the sandbox that was opened?
set -eu
umask 022
work=/opt/berth/.work
if [ "$(cat $work/id 2>/dev/null)" != "$1" ]; then
    echo "this is not the maintenance sandbox that was opened" >&2
    exit 97
fi
shift
