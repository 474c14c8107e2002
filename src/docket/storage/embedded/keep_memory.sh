# Runs a temporary server, and removes the server and its folder when the owner has ended.
#
# $1     the folder, which is also the working directory
# $2...  the server's command line
# stdin  the lifeline: a pipe that only the owner could write to, and it never does. The pipe ends
#        when the owner ends, in whatever way.
#
# The script kills the process group: no other program can get the group's number while this shell is
# in it. If the server died early, its process id could belong to another program.
umask 077
folder=$1
shift
exec 3<&0
(
    ("$@" 3<&-; echo $? >exit-status) </dev/null >server.log 2>&1 &
    trap '' HUP INT TERM
    read -r end <&3
    rm -rf -- "$folder"
    kill -9 0
) </dev/null >/dev/null 2>&1 &
