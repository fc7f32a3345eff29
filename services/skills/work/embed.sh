#!/bin/sh
# Assembler text that holds each script, NUL-terminated: begin.sh as work_begin_sh. Scripts in
# front of which prelude.sh has to stand get it. The sums make the output change with the scripts,
# or it would not be assembled again.
set -eu
prelude=$1
shift
echo '.section .rodata'
for file do
    base=${file##*/}
    name=work_$(echo "$base" | tr . _)
    printf '.global %s\n%s:\n' "$name" "$name"
    case $base in
    begin.sh | parse.* | present.*) ;; # of the gate: not as root
    *) printf '.incbin "%s"\n' "$prelude" ;;
    esac
    printf '.incbin "%s"\n.byte 0\n' "$file"
done
echo '.section .note.GNU-stack,"",@progbits'
cksum "$prelude" "$@" | sed 's|.*|/* & */|'
