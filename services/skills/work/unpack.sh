# Unpack the tar of one skill and put it in place of what was there. Root.
# $1: name, also of the one folder in the tar; $2: the tar.
new=$work/new
rm -rf -- "$new"
mkdir "$new"
tar --extract --file="$2" --directory="$new" --numeric-owner --same-permissions
rm -f -- "$2"
rm -rf -- "$tree/$1"
mv -T -- "$new/$1" "$tree/$1"
rm -rf -- "$new"
