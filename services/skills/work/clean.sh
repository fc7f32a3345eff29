# The last step: nothing is left but the image. Root. stdin: as of seal.sh. Prints the bytes of
# the skills' tree. __pycache__ of environments stays: sessions could not write it themselves.
known=$(cat)
quieten
root=$(cat $work/root.path)
if [ -n "$root" ]; then
    find "$root" -xdev -mindepth 1 ! -type d -cnewer $work/id -delete
    find "$root" -xdev -mindepth 1 -depth -type d -cnewer $work/id -exec rmdir \
        --ignore-fail-on-non-empty {} +
fi
forget
for place in /tmp /var/tmp /dev/shm; do
    if [ -d $place ] && [ ! -L $place ]; then find $place -xdev -mindepth 1 -delete; fi
done
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old
find /var/cache/apt/archives -xdev -type f -delete 2>/dev/null || :
find /var/log -xdev -type f -cnewer $work/id -exec truncate -s 0 -- {} +
du -s -B1 --apparent-size $tree | cut -f1
rm -rf $work
sync -f /
