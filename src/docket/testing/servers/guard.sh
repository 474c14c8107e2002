# Kills the servers of a process and removes their folder when that process has ended.
#
# $1     the folder
# stdin  the lifeline: a pipe that only the owner writes to. It ends when the owner ends, in whatever
#        way. The owner writes "start <process group>" before a server starts, and "end <process group>".
folder=$1
exec 3<&0
(
    trap '' HUP INT TERM
    groups=
    while read -r word group <&3; do
        kept=
        for one in $groups; do
            [ "$one" = "$group" ] || kept="$kept $one"
        done
        groups=$kept
        [ "$word" = end ] || groups="$groups $group"
    done
    for group in $groups; do
        kill -s KILL -- "-$group"
    done
    # A server that is just ending may still create a file.
    until rm -rf -- "$folder"; do
        sleep 0.1
    done
) </dev/null >/dev/null 2>&1 &
