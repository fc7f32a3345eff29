# The skills' tree: of root, readable by all, writable by none. Root. stdin: the processes that
# were there at the beginning. Prints every symbolic link and what stands in it, a NUL behind
# each. What is right already is not touched: on a stack of layers that would copy it.
known=$(cat)
quieten
if [ -L $tree ] || [ ! -d $tree ]; then
    echo "$tree is no folder" >&2
    exit 1
fi
odd=$(find $tree -xdev ! -type f ! -type d ! -type l -print | head -n 5)
if [ -n "$odd" ]; then
    echo "devices, sockets or FIFOs in the tree: $odd" >&2
    exit 1
fi
# A name of a file that has others elsewhere gets a copy of its own.
find $tree -xdev -type f -links +1 -exec sh -c '
    copy=$1
    shift
    for file do
        cp -p -- "$file" "$copy"
        mv -f -- "$copy" "$file"
    done' sh $work/copy {} +
# A change of owner takes file capabilities away, too.
find $tree -xdev \( ! -uid 0 -o ! -gid 0 -o -type f -cnewer $work/id \) -exec chown -h 0:0 {} +
find $tree -xdev ! -type l \( -perm /7222 -o ! -perm -0444 -o -type d ! -perm -0111 -o \
    -type f -perm /0111 ! -perm -0111 \) -exec chmod u-s,g-s,-t,a-w,a+rX {} +
find $tree -xdev -type l -printf '%P\0%l\0'
