# Says of each folder of argv whether a Node package lies there. In the session's account.
number=0
for folder do
    if [ -f "$folder/package.json" ]; then state=ok; else state=bad; fi
    printf '%s %s 0 \0' $number $state
    number=$((number + 1))
done
