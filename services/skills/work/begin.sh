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
home=$(getent passwd 1000 | cut -d: -f6)
if [ -d "$home" ] && [ "$home" != / ]; then
    cp -a -- "$home" $work/home
fi
if command -v uv >/dev/null; then echo uv; else echo no-uv; fi
for stat in /proc/[0-9]*/stat; do
    read -r line <"$stat" 2>/dev/null || continue
    pid=${line%% *}
    [ "$pid" = $$ ] && continue
    line=${line##*) }
    # The fields from the third on; the 22nd is when it began.
    set -- "$1" $line
    printf '%s:%s ' "$pid" "${21}"
done
printf %s "$1" >$work/id.new
mv $work/id.new $work/id
