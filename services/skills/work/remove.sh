# Remove one skill. Root. $1: its name.
rm -rf -- "$tree/$1"
if [ -e "$tree/$1" ] || [ -L "$tree/$1" ]; then exit 1; fi
