# Remove one skill. Root. $1: its name.
rm -rf -- "/opt/berth/skills/$1"
if [ -e "/opt/berth/skills/$1" ] || [ -L "/opt/berth/skills/$1" ]; then exit 1; fi
