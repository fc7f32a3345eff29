# Parses each file of argv with the shell $1, and runs nothing of it. In the session's account;
# nothing of the prelude's is used. The line stands in the message.
shell=$1
shift
number=0
for file do
    if why=$($shell -n "$file" 2>&1 </dev/null); then
        printf '%s ok 0 \0' $number
    else
        printf '%s bad 0 %s\0' $number "$(printf %s "$why" | head -c 600)"
    fi
    number=$((number + 1))
done
