# Leaves a server running by itself. It inherits the lock on its folder, and holds it until it ends.
#
# $@  the server's command line
#
# This shell leads a new process group. The number is written down first: no server runs that cannot be stopped.
umask 077
echo $$ >server.group || exit 1
"$@" </dev/null &
