# In front of every script but begin.sh: is this the sandbox that was opened? And what several of
# them do.
set -eu
umask 022
work=/opt/berth/.work
tree=/opt/berth/skills
if [ "$(cat $work/id 2>/dev/null)" != "$1" ]; then
    echo "this is not the maintenance sandbox that was opened" >&2
    exit 97
fi
shift

# Processes that were not there at the beginning ($known), but for this script's own session.
strays() {
    read -r line </proc/$$/stat
    set -- ${line##*) }
    own=$4
    for stat in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$stat" || continue
        pid=${stat#/proc/}
        pid=${pid%/stat}
        set -- ${line##*) }
        if [ $# -ge 20 ]; then
            if [ "$1" = Z ] || [ "$4" = "$own" ]; then continue; fi
            case " $known " in *" $pid:${20} "*) continue ;; esac
        fi
        printf '%s ' "$pid"
    done
}

# Ends them all.
quieten() {
    tries=0
    while left=$(strays) && [ -n "$left" ]; do
        kill -9 $left 2>/dev/null || :
        tries=$((tries + 1))
        if [ $tries -gt 50 ]; then
            echo "processes that do not end: $left" >&2
            return 1
        fi
        sleep 0.1
    done
}

# What is of the session's user, and all of the workspace, each with a NUL behind it; words: of
# find, which of it. The system's own files and the sealed tree are not his to write to.
users_own() {
    find / /tmp /var/tmp /dev/shm /run /home /workspace -xdev -path $work -prune -o \
        -path /tmp/berth-install -prune -o -path /usr -prune -o -path $tree -prune -o \
        \( -uid 1000 -o -gid 1000 -o -path '/workspace/*' \) "$@" -print0 2>/dev/null | sort -zu
}

# What the session's user has made since the beginning goes, and what he has removed or changed
# in his home is as it was.
forget() {
    users_own -type d | comm -z -13 $work/folders - | xargs -0 -r rm -rf --
    users_own ! -type d -cnewer $work/id | xargs -0 -r rm -f --
    for place in home root; do
        to=$(cat $work/$place.path)
        if [ -n "$to" ]; then cp -a -n -- $work/$place/. "$to/"; fi
    done
}
