# First of all: who is there, what the image brings, and a place of our own. Root.
# $1: the id of the work. Prints "uv" or "no-uv", then the processes that were there before.
set -eu
umask 022
work=/opt/berth/.work
if [ -e $work ]; then
    echo "this sandbox has been worked in before" >&2
    exit 97
fi
mkdir -p /opt/berth/skills
mkdir $work $work/tmp
chmod 0755 /opt/berth /opt/berth/skills $work
chmod 0700 $work/tmp
rm -rf /tmp/berth-install
mkdir /tmp/berth-install
mkdir -m 0700 /tmp/berth-install/in
chown 1000:1000 /tmp/berth-install/in
# What the homes are like, and which folders the session's user has: see forget() of prelude.sh.
for place in home:1000 root:0; do
    path=$(getent passwd ${place#*:} | cut -d: -f6)
    if [ ! -d "$path" ] || [ "$path" = / ]; then path=; fi
    printf %s "$path" >$work/${place%:*}.path
    if [ -n "$path" ]; then cp -a -- "$path" $work/${place%:*}; fi
done
find / /tmp /var/tmp /dev/shm /run /home /workspace -xdev -path $work -prune -o \
    -path /tmp/berth-install -prune -o -path /usr -prune -o -path /opt/berth/skills -prune -o \
    \( -uid 1000 -o -gid 1000 -o -path '/workspace/*' \) -type d -print0 2>/dev/null |
    sort -zu >$work/folders
if command -v uv >/dev/null; then echo uv; else echo no-uv; fi
for stat in /proc/[0-9]*/stat; do
    read -r line 2>/dev/null <"$stat" || continue
    pid=${stat#/proc/}
    pid=${pid%/stat}
    [ "$pid" = $$ ] && continue
    # The fields from the third on; the 22nd is when it began.
    set -- "$1" ${line##*) }
    if [ $# -ge 21 ]; then printf '%s:%s ' "$pid" "${21}"; fi
done
printf %s "$1" >$work/id.new
mv $work/id.new $work/id
