# Runs a throw-away server and removes it, with its folder, when its owner has ended.
#
# $1     the folder, which is also the working directory
# $2...  the server's command line
# stdin  the lifeline: a pipe that only the owner can write to, and nobody does. It ends when the owner ends,
#        however that happens.
#
# The server is stopped by its process group, whose number nobody else can get while this shell is in it. The server's
# own number, if it had died early, could be another program's by then.
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
